-- The statements that look for what is damaged, and move it out of the way. How the file is read: queries.py; its parts
-- stand in queries.sql.

-- name: keep_damaged
-- A row as it was, as JSON, for a person to look at; of a message with its deliveries, of a delivery with its message.
INSERT INTO damaged (kind, message_id, message, deliveries) VALUES (?, ?, ?, ?);

-- name: count_damaged
SELECT count(*) FROM (SELECT 1 FROM damaged LIMIT ?);

-- name: raw_deliveries_of
SELECT {raw_delivery} FROM delivery d INDEXED BY delivery_message LEFT JOIN message m ON m.number = d.message
WHERE d.message = ?;

-- name: raw_deliveries
-- ?1 after, ?2 limit.
SELECT {raw_delivery} FROM delivery d NOT INDEXED LEFT JOIN message m ON m.number = d.message
WHERE d.key > ?1 ORDER BY d.key LIMIT ?2;

-- name: raw_delivery_at
SELECT {raw_delivery} FROM delivery d LEFT JOIN message m ON m.number = d.message WHERE d.key = ?;

-- name: reindex_deliveries
REINDEX delivery;

-- name: newest_messages
-- The end of the store, which a crash would have touched.
SELECT {raw_message} FROM message m ORDER BY m.number DESC LIMIT ?;

-- name: raw_messages
-- ?1 after, ?2 limit.
SELECT {raw_message} FROM message m WHERE m.number > ?1 ORDER BY m.number LIMIT ?2;

-- name: raw_message_at
SELECT {raw_message} FROM message m WHERE m.number = ?;

-- name: is_indexed
-- ?1 number. Whether every index leads to the row as it is: one where bits flipped may stand elsewhere in them, and then
-- it cannot be removed.
SELECT EXISTS (SELECT 1 FROM message x INDEXED BY message_id WHERE x.id = m.id AND x.number = m.number)
  AND (m.key IS NULL OR EXISTS (SELECT 1 FROM message x INDEXED BY message_key
       WHERE x.key = m.key AND x.sender = m.sender AND x.key IS NOT NULL AND x.number = m.number))
  AND (m.in_reply_to IS NULL OR m.kind <> 'reply' OR EXISTS (SELECT 1 FROM message x INDEXED BY message_reply
       WHERE x.in_reply_to = m.in_reply_to AND x.kind = 'reply' AND x.number = m.number))
  AND (m.chain IS NULL OR m.depth <= 0 OR EXISTS (SELECT 1 FROM message x INDEXED BY message_chain
       WHERE x.chain = m.chain AND x.accepted_at = m.accepted_at AND x.depth > 0 AND x.number = m.number))
  AND (m.thread IS NULL OR EXISTS (SELECT 1 FROM message x INDEXED BY message_thread
       WHERE x.thread = m.thread AND x.thread IS NOT NULL AND x.number = m.number))
FROM message m WHERE m.number = ?1;

-- name: reindex_messages
-- Safe whatever flipped: a row says by its checksum whether it is right.
REINDEX message;

-- name: raw_removed
-- All rows of a small table, with texts as bytes; so do the four below.
SELECT CAST(mailbox AS BLOB), seq, sum FROM removed;

-- name: raw_agents
SELECT CAST(mailbox AS BLOB), CAST(handle AS BLOB), CAST(title AS BLOB), CAST(description AS BLOB), member, keyed,
    created_at, seen_at, adapter, sum FROM agent;

-- name: raw_tokens
SELECT CAST(id AS BLOB), CAST(mailbox AS BLOB), digest, created_at, ends_at, sum FROM token;

-- name: raw_contacts
SELECT CAST(one AS BLOB), CAST(other AS BLOB), at, sum FROM contact;

-- name: raw_notes
SELECT CAST(name AS BLOB), value, at, sum FROM note;

-- name: clear_removed
DELETE FROM removed;

-- name: clear_agents
DELETE FROM agent;

-- name: clear_tokens
DELETE FROM token;

-- name: clear_contacts
DELETE FROM contact;

-- name: clear_notes
DELETE FROM note;

-- name: values
SELECT name, value FROM meta;

-- name: clear_values
DELETE FROM meta;

-- name: schema
SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL;

-- name: hides_messages
-- Whether an index knows of rows that the table does not show: then it is the table that is damaged.
SELECT (SELECT count(*) FROM message NOT INDEXED) < (SELECT count(*) FROM message INDEXED BY message_id);

-- name: hides_deliveries
SELECT (SELECT count(*) FROM delivery NOT INDEXED) < (SELECT count(*) FROM delivery INDEXED BY delivery_message);
