-- The statements that give up tables and indexes whose pages cannot be read, and make them again. How the file is read:
-- queries.py. What stands in a migration stands here again, since a migration never changes any more.

-- name: create_search
CREATE VIRTUAL TABLE search USING fts5 (
    text, who,
    content = '', contentless_delete = 1,
    tokenize = "unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);

-- name: no_automerge
INSERT INTO search (search, rank) VALUES ('automerge', 0);

-- name: create_search_again
CREATE TABLE search_again (number INTEGER PRIMARY KEY) STRICT;

-- name: create_search_sum
CREATE TABLE search_sum (id INTEGER PRIMARY KEY, sum INTEGER NOT NULL) STRICT;

-- name: all_blocks
SELECT id, block FROM search_data;

-- name: rename_in_schema
-- ?1 a table's name, ?2 its new one, ?3 how it is described now. Its pages are not looked at.
UPDATE sqlite_schema SET name = ?2, tbl_name = ?2, sql = ?3 WHERE name = ?1 AND type = 'table';

-- name: forget_in_schema
-- A table or an index. Its pages belong to nothing then.
DELETE FROM sqlite_schema WHERE name = ?;

-- name: indexes
SELECT name, rootpage, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL;

-- name: take_root
-- ?1 a table, ?2 another that is described alike: the pages of that are the first one's from now on.
UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = ?2) WHERE name = ?1;

-- name: create_message_anew
-- Of no types: what is no text any more, say, is copied as it is.
CREATE TABLE message_anew (number INTEGER PRIMARY KEY, id, sender, recipient, intent, kind, text, body, flat, thread,
    in_reply_to, chain, depth, via, lane, replay, created_at, expires_at, verified, about, reason, key, fingerprint,
    accepted_at, checksum, origin);

-- name: copy_messages
-- ?1 the number of all that are chosen, NULL for their own. As the rows lie; their order in the other is that of numbers.
INSERT INTO message_anew SELECT ifnull(?1, number), id, sender, recipient, intent, kind, text, body, flat, thread,
    in_reply_to, chain, depth, via, lane, replay, created_at, expires_at, verified, about, reason, key, fingerprint,
    accepted_at, checksum, origin
FROM message NOT INDEXED WHERE is_chosen(number);

-- name: create_delivery_anew
CREATE TABLE delivery_anew (key INTEGER PRIMARY KEY, seq, message, mailbox, recipient, connection, sender, lane, size,
    state, attempt, used, deferred, hand, reason, late, accepted_at, expires_at, sweep_at, leased_at, delivered_at,
    answered_at, ended_at, owes, sum);

-- name: copy_deliveries
INSERT INTO delivery_anew SELECT ifnull(?1, key), seq, message, mailbox, recipient, connection, sender, lane, size,
    state, attempt, used, deferred, hand, reason, late, accepted_at, expires_at, sweep_at, leased_at, delivered_at,
    answered_at, ended_at, owes, sum
FROM delivery NOT INDEXED WHERE is_chosen(key);

-- name: roots
-- Of what can be made anew from the rows of its table.
SELECT name, rootpage FROM sqlite_schema
WHERE (type = 'index' AND sql IS NOT NULL) OR name IN ('message', 'delivery');

-- name: owner_of_page
-- All pages are walked for it, and SQLite may be built without this table.
SELECT name FROM dbstat WHERE pageno = ?;

-- name: tables_left
SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'search_left_*';

-- name: as_numbered
CREATE TABLE left_over (id INTEGER PRIMARY KEY, a, b);

-- name: as_words
CREATE TABLE left_over (a, b, c, PRIMARY KEY (a, b)) WITHOUT ROWID;

-- name: as_names
CREATE TABLE left_over (a PRIMARY KEY, b) WITHOUT ROWID;

-- name: drop_left
DROP TABLE search_left_data;

-- name: clear_left_data
DELETE FROM search_left_data WHERE id IN (SELECT id FROM search_left_data LIMIT ?);

-- name: clear_left_docsize
DELETE FROM search_left_docsize WHERE id IN (SELECT id FROM search_left_docsize LIMIT ?);
