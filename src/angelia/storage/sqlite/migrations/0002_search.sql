-- Finding again what was said: the messages of a conversation, and full text.

CREATE INDEX message_thread ON message (thread) WHERE thread IS NOT NULL;

-- The words of each message, and who sent and got it, as words too (index.py). Contentless: the texts stand in message
-- alone. rowid: the number of the message * 512 + which part of its text.
CREATE VIRTUAL TABLE search USING fts5 (
    text, who,
    content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);
-- Merging its pieces is done step by step (index.py), not by whichever insert comes too many.
INSERT INTO search (search, rank) VALUES ('automerge', 0);

-- Messages whose entry in the index is not what it should be: they were removed, or have got further recipients.
CREATE TABLE search_again (
    number INTEGER PRIMARY KEY
) STRICT;

-- A number above all others may be given again, so the index may not say any more that it is done with it.
CREATE TRIGGER message_removed AFTER DELETE ON message BEGIN
    INSERT OR IGNORE INTO search_again (number) VALUES (old.number);
    UPDATE meta SET value = (SELECT ifnull(max(number), 0) FROM message)
    WHERE name = 'indexed' AND value > (SELECT ifnull(max(number), 0) FROM message);
END;

-- Messages up to this number are in the index, but for those of search_again.
INSERT INTO meta (name, value) VALUES ('indexed', 0);
