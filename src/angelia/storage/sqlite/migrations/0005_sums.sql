-- Each row says whether it is what was written: sum, made over its other columns (rows.py). That of a delivery is made
-- with the id of its message in place of the number, so that no row is taken for another's.

ALTER TABLE delivery ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
UPDATE delivery SET sum = delivery_sum(key, seq, (SELECT id FROM message WHERE number = delivery.message), mailbox, recipient,
    connection, sender, lane, size, state, attempt, used, deferred, hand, reason, late, accepted_at, expires_at, sweep_at,
    leased_at, delivered_at, answered_at, ended_at, owes);

ALTER TABLE removed ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
UPDATE removed SET sum = row_sum(mailbox, seq);

ALTER TABLE agent ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
UPDATE agent SET sum = row_sum(mailbox, handle, title, description, member, keyed, created_at, seen_at, adapter);

ALTER TABLE token ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
UPDATE token SET sum = row_sum(id, mailbox, digest, created_at, ends_at);

ALTER TABLE contact ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
UPDATE contact SET sum = row_sum(one, other, at);

ALTER TABLE note ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
UPDATE note SET sum = row_sum(name, value, at);

-- The same of each block of the search index.
CREATE TABLE search_sum (
    id  INTEGER PRIMARY KEY,
    sum INTEGER NOT NULL
) STRICT;
INSERT INTO search_sum (id, sum) SELECT id, row_sum(block) FROM search_data;
-- And of what leads to it, under the same id below zero.
INSERT OR REPLACE INTO search_sum (id, sum)
SELECT -((segid << 37) + (pgno >> 1)), row_sum(segid, term, pgno) FROM search_idx;

-- Which table a damaged row was in. message_id is then what names it there, and message the row.
ALTER TABLE damaged ADD COLUMN kind TEXT NOT NULL DEFAULT 'message';
