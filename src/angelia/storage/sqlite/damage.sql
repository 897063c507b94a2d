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

-- name: delivery_sum_at
-- Fails where the row cannot be read: what it ends with comes last.
SELECT sum FROM delivery WHERE key = ?;

-- name: delivery_sum_by_place
-- The same of the row that lies behind so many others; so do the two below.
SELECT sum FROM delivery NOT INDEXED LIMIT 1 OFFSET ?;

-- name: raw_delivery_by_place
SELECT {raw_delivery} FROM delivery d NOT INDEXED LEFT JOIN message m ON m.number = d.message LIMIT 1 OFFSET ?;

-- name: raw_message_by_place
SELECT {raw_message} FROM message m NOT INDEXED LIMIT 1 OFFSET ?;

-- name: disorder_of_deliveries
-- Where a key does not rise: how many rows lie before it, it, and the two before it. As the rows lie: one that is led to
-- by its key is not seen where it should not be. Reads nothing of them but their keys.
SELECT place, key, before, first FROM (
    SELECT row_number() OVER () - 1 AS place, key, lag(key) OVER () AS before, lag(key, 2) OVER () AS first
    FROM delivery NOT INDEXED
) WHERE key <= before;

-- name: disorder_of_messages
SELECT place, number, before, first FROM (
    SELECT row_number() OVER () - 1 AS place, number, lag(number) OVER () AS before, lag(number, 2) OVER () AS first
    FROM message NOT INDEXED
) WHERE number <= before;

-- name: delivery_keys
-- ?1 after, ?2 limit; so does the one below. Reads nothing of the rows but their keys.
SELECT key FROM delivery NOT INDEXED WHERE key > ?1 ORDER BY key LIMIT ?2;

-- name: message_numbers
SELECT number FROM message NOT INDEXED WHERE number > ?1 ORDER BY number LIMIT ?2;

-- name: disorder_near
-- ?1 a key, ?2 how many rows before it and behind it.
SELECT EXISTS (SELECT 1 FROM (SELECT key, lag(key) OVER () AS before FROM (
    SELECT key FROM delivery NOT INDEXED WHERE key >= ifnull(
        (SELECT key FROM delivery NOT INDEXED WHERE key <= ?1 ORDER BY key DESC LIMIT 1 OFFSET ?2), -9223372036854775808)
    ORDER BY key LIMIT 2 * ?2
)) WHERE key <= before);

-- name: deliveries_lost
-- Of those that were not copied, what the index says; all of it is walked for that.
SELECT key, message FROM delivery INDEXED BY delivery_message
WHERE message > 0 AND +key NOT IN (SELECT key FROM delivery_anew);

-- name: messages_lost
SELECT number, id FROM message INDEXED BY message_id WHERE +number NOT IN (SELECT number FROM message_anew);

-- name: indexes_of
SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL;

-- name: left_alone
-- ?1 after, ?2 limit. Messages, and whether each has no delivery.
SELECT number, NOT EXISTS (SELECT 1 FROM delivery INDEXED BY delivery_message WHERE delivery.message = message.number)
FROM message NOT INDEXED WHERE number > ?1 ORDER BY number LIMIT ?2;

-- name: is_alone
SELECT NOT EXISTS (SELECT 1 FROM delivery INDEXED BY delivery_message WHERE delivery.message = ?1);

-- name: remove_damaged
-- ?1 keys as a JSON array. Gives nothing: what it gave might be no text.
DELETE FROM delivery WHERE key IN (SELECT value FROM json_each(?1));

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
SELECT CAST(name AS BLOB), value FROM meta;

-- name: clear_values
DELETE FROM meta;

-- name: schema
SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL;

-- name: hides_messages
-- Whether an index knows of rows that the table does not show: then it is the table that is damaged.
SELECT (SELECT count(*) FROM message NOT INDEXED) < (SELECT count(*) FROM message INDEXED BY message_id);

-- name: hides_deliveries
SELECT (SELECT count(*) FROM delivery NOT INDEXED) < (SELECT count(*) FROM delivery INDEXED BY delivery_message);
