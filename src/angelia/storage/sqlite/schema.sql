-- The store as it is: what the migrations add up to. For reading; a test holds the two together.
--
-- sum, in any table: made over the other columns (rows.py), of a delivery with the id of its message in place of the
-- number. Compared whenever the row is read.

-- What is known of the store itself: epoch, instance, secret, seq (every number up to it may have been given), shape
-- (sums of what the tables are described by), all of them with a spare (identity.py); self_test; indexed (messages up to this number are in search, but for those of search_again).
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- One accepted message. thread and chain are NULL where they are the message's own id (but chain only at depth 0).
-- origin: what the sender said at the hub of its own, as JSON; NULL where the message never leaves this hub.
-- checksum is made over the other columns (rows.py) and compared whenever the row is read.
CREATE TABLE message (
    number      INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    sender      TEXT NOT NULL COLLATE NOCASE,
    recipient   TEXT NOT NULL,
    intent      TEXT NOT NULL,
    kind        TEXT NOT NULL,
    text        TEXT,
    body        BLOB,
    flat        INTEGER NOT NULL,
    thread      TEXT,
    in_reply_to TEXT,
    chain       TEXT,
    depth       INTEGER NOT NULL,
    via         TEXT,
    lane        TEXT NOT NULL,
    replay      TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    verified    INTEGER NOT NULL,
    about       TEXT,
    reason      TEXT,
    key         TEXT,
    fingerprint BLOB NOT NULL,
    accepted_at INTEGER NOT NULL,
    checksum    BLOB NOT NULL
, origin TEXT) STRICT;

CREATE UNIQUE INDEX message_id ON message (id);
CREATE INDEX message_key ON message (key, sender) WHERE key IS NOT NULL;
CREATE INDEX message_reply ON message (in_reply_to) WHERE kind = 'reply';
CREATE INDEX message_chain ON message (chain, accepted_at) WHERE depth > 0;
CREATE INDEX message_thread ON message (thread) WHERE thread IS NOT NULL;

-- One message in one mailbox. recipient is NULL where it is the mailbox. State numbers: model/delivery.py.
CREATE TABLE delivery (
    key          INTEGER PRIMARY KEY,
    seq          INTEGER NOT NULL,
    message      INTEGER NOT NULL,
    mailbox      TEXT NOT NULL,
    recipient    TEXT,
    connection   TEXT,
    sender       TEXT NOT NULL,
    lane         INTEGER NOT NULL,
    size         INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    attempt      INTEGER NOT NULL,
    used         INTEGER NOT NULL,
    deferred     INTEGER NOT NULL,
    hand         TEXT,
    reason       TEXT,
    late         INTEGER NOT NULL,
    accepted_at  INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    sweep_at     INTEGER,
    leased_at    INTEGER,
    delivered_at INTEGER,
    answered_at  INTEGER,
    ended_at     INTEGER
, owes TEXT, sum INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE INDEX delivery_message ON delivery (message);
-- What a claim takes from; with sender and size it is also all that the sums are made of.
CREATE INDEX delivery_open ON delivery (mailbox, state, deferred, lane, seq, sender, size) WHERE state <= 3;
CREATE INDEX delivery_connection ON delivery (connection, deferred, lane, seq)
    WHERE connection IS NOT NULL AND state = 0;
-- Queued again after an attempt: few at any time.
CREATE INDEX delivery_returned ON delivery (mailbox, seq) WHERE state = 0 AND attempt > 0;
-- Those that were ever handed over; and those that ended without, so that these two and delivery_open cover all rows.
CREATE INDEX delivery_handed ON delivery (mailbox, seq) WHERE attempt > 0;
CREATE INDEX delivery_unhanded ON delivery (mailbox, seq) WHERE attempt = 0 AND state > 3;
CREATE INDEX delivery_sweep ON delivery (sweep_at) WHERE sweep_at IS NOT NULL;
CREATE INDEX delivery_stuck ON delivery (key) WHERE state = 3 OR state = 7;
-- What turns run for: few at any time.
-- Came by a connection that has not been told yet what became of it.
CREATE INDEX delivery_owed ON delivery (owes, key) WHERE owes IS NOT NULL AND state > 3;
CREATE INDEX delivery_turn ON delivery (key) WHERE state = 1 AND hand = 'turn';

-- The highest seq that retention took out of a mailbox, of those that had been handed over.
CREATE TABLE removed (
    mailbox TEXT PRIMARY KEY,
    seq     INTEGER NOT NULL
, sum INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

CREATE TABLE agent (
    mailbox     TEXT PRIMARY KEY,
    handle      TEXT NOT NULL,
    title       TEXT NOT NULL,
    description TEXT NOT NULL,
    member      INTEGER NOT NULL,
    keyed       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL
, adapter BLOB, sum INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

CREATE TABLE token (
    id         TEXT PRIMARY KEY,
    mailbox    TEXT NOT NULL,
    digest     BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    ends_at    INTEGER
, sum INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

-- Who has exchanged mail with whom, and when last. Both directions.
CREATE TABLE contact (
    one   TEXT NOT NULL,
    other TEXT NOT NULL,
    at    INTEGER NOT NULL, sum INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (one, other)
) STRICT, WITHOUT ROWID;

-- What a hand remembers over a restart, such as the name that an agent gives its conversation. at: UTC ms.
CREATE TABLE note (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    at    INTEGER NOT NULL
, sum INTEGER NOT NULL DEFAULT 0) STRICT, WITHOUT ROWID;

-- Rows that were not what was written, as they were, as JSON (bytes in hex): of table kind, where message_id names them.
-- A message stands there with its deliveries, a delivery with its message. Nothing reads them but a person.
CREATE TABLE damaged (
    number     INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL,
    message    TEXT NOT NULL,
    deliveries TEXT NOT NULL
, kind TEXT NOT NULL DEFAULT 'message') STRICT;

-- The words of each message, and who sent and got it, as words too (index.py). Contentless: the texts stand in message
-- alone. rowid: the number of the message * 512 + which part of its text.
CREATE VIRTUAL TABLE search USING fts5 (
    text, who,
    content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);

-- The sum of each block of the search index; and, under its id below zero, of the row of search_idx that leads to it.
CREATE TABLE search_sum (
    id  INTEGER PRIMARY KEY,
    sum INTEGER NOT NULL
) STRICT;

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
