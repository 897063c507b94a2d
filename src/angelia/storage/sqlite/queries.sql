-- Every statement of the store but the migrations. How the file is read: queries.py.
--
-- A partial index serves only a statement that repeats its condition word for word: hence `state <= 3` beside
-- `state = 0`. INDEXED BY makes a statement fail at once, in the tests, when its index no longer fits.

-- part: delivery
-- The columns of one delivery, in the order that rows.delivery_of takes them.
d.key, d.seq, m.id, d.mailbox, d.recipient, d.connection, d.sender, d.lane, d.size, d.state, d.attempt, d.used,
d.deferred, d.hand, d.reason, d.late, d.accepted_at, d.expires_at, d.sweep_at, d.leased_at, d.delivered_at,
d.answered_at, d.ended_at, d.owes, d.sum;

-- part: delivery_bytes
-- The same with texts as bytes: rows.as_text. One bit makes of a text a blob of the same bytes, which is not the same.
d.key, d.seq,
CAST(iif(typeof(m.id) = 'blob', 'blob ' || hex(m.id), m.id) AS BLOB),
CAST(iif(typeof(d.mailbox) = 'blob', 'blob ' || hex(d.mailbox), d.mailbox) AS BLOB),
CAST(iif(typeof(d.recipient) = 'blob', 'blob ' || hex(d.recipient), d.recipient) AS BLOB),
CAST(iif(typeof(d.connection) = 'blob', 'blob ' || hex(d.connection), d.connection) AS BLOB),
CAST(iif(typeof(d.sender) = 'blob', 'blob ' || hex(d.sender), d.sender) AS BLOB),
d.lane, d.size, d.state, d.attempt, d.used, d.deferred,
CAST(iif(typeof(d.hand) = 'blob', 'blob ' || hex(d.hand), d.hand) AS BLOB),
CAST(iif(typeof(d.reason) = 'blob', 'blob ' || hex(d.reason), d.reason) AS BLOB),
d.late, d.accepted_at, d.expires_at, d.sweep_at, d.leased_at, d.delivered_at, d.answered_at, d.ended_at,
CAST(iif(typeof(d.owes) = 'blob', 'blob ' || hex(d.owes), d.owes) AS BLOB),
d.sum;

-- part: raw_delivery
-- With the number of its message.
{delivery_bytes}, d.message;

-- part: message
-- The columns of one message, in the order that rows.message_of takes them and that the checksum is made over.
m.id, m.sender, m.recipient, m.intent, m.kind, m.text, m.body, m.flat, m.thread, m.in_reply_to, m.chain, m.depth,
m.via, m.lane, m.replay, m.created_at, m.expires_at, m.verified, m.about, m.reason, m.key, m.fingerprint,
m.accepted_at, m.origin, m.checksum, m.number;

-- part: raw_message
-- The same with texts as bytes, so that one that is no text any more can be looked at: rows.is_whole.
CAST(iif(typeof(m.id) = 'blob', 'blob ' || hex(m.id), m.id) AS BLOB),
CAST(iif(typeof(m.sender) = 'blob', 'blob ' || hex(m.sender), m.sender) AS BLOB),
CAST(iif(typeof(m.recipient) = 'blob', 'blob ' || hex(m.recipient), m.recipient) AS BLOB),
CAST(iif(typeof(m.intent) = 'blob', 'blob ' || hex(m.intent), m.intent) AS BLOB),
CAST(iif(typeof(m.kind) = 'blob', 'blob ' || hex(m.kind), m.kind) AS BLOB),
CAST(iif(typeof(m.text) = 'blob', 'blob ' || hex(m.text), m.text) AS BLOB),
m.body, m.flat,
CAST(iif(typeof(m.thread) = 'blob', 'blob ' || hex(m.thread), m.thread) AS BLOB),
CAST(iif(typeof(m.in_reply_to) = 'blob', 'blob ' || hex(m.in_reply_to), m.in_reply_to) AS BLOB),
CAST(iif(typeof(m.chain) = 'blob', 'blob ' || hex(m.chain), m.chain) AS BLOB),
m.depth,
CAST(iif(typeof(m.via) = 'blob', 'blob ' || hex(m.via), m.via) AS BLOB),
CAST(iif(typeof(m.lane) = 'blob', 'blob ' || hex(m.lane), m.lane) AS BLOB),
CAST(iif(typeof(m.replay) = 'blob', 'blob ' || hex(m.replay), m.replay) AS BLOB),
m.created_at, m.expires_at, m.verified,
CAST(iif(typeof(m.about) = 'blob', 'blob ' || hex(m.about), m.about) AS BLOB),
CAST(iif(typeof(m.reason) = 'blob', 'blob ' || hex(m.reason), m.reason) AS BLOB),
CAST(iif(typeof(m.key) = 'blob', 'blob ' || hex(m.key), m.key) AS BLOB),
m.fingerprint, m.accepted_at,
CAST(iif(typeof(m.origin) = 'blob', 'blob ' || hex(m.origin), m.origin) AS BLOB),
m.checksum, m.number;

-- ------------------------------------------------------------------------------------------------------------ messages

-- name: add_message
-- Changes nothing where the id is there already.
INSERT INTO message (id, sender, recipient, intent, kind, text, body, flat, thread, in_reply_to, chain, depth, via, lane,
    replay, created_at, expires_at, verified, about, reason, key, fingerprint, accepted_at, origin, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO NOTHING;

-- name: message_number
SELECT number FROM message WHERE id = ?;

-- name: message
SELECT {message} FROM message m WHERE m.id = ?;

-- name: message_at
SELECT {message} FROM message m WHERE m.number = ?;

-- name: message_by_key
-- The column compares without regard to case, so the display form of the sender is found.
SELECT {message} FROM message m WHERE m.key = ? AND m.sender = ? AND m.key IS NOT NULL ORDER BY m.number;

-- name: reply_to
SELECT {message} FROM message m INDEXED BY message_reply WHERE m.in_reply_to = ? AND m.kind = 'reply' ORDER BY m.number;

-- name: chain_count
SELECT count(*) FROM message INDEXED BY message_chain WHERE chain = ? AND accepted_at >= ? AND depth > 0;

-- ---------------------------------------------------------------------------------------------------------- deliveries

-- name: add_delivery
INSERT INTO delivery (message, key, seq, mailbox, recipient, connection, sender, lane, size, state, attempt, used,
    deferred, hand, reason, late, accepted_at, expires_at, sweep_at, leased_at, delivered_at, answered_at, ended_at, owes,
    sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: change
-- One delivery that keeps its attempt and seq: the index of those handed over is not written.
UPDATE delivery SET state = ?, deferred = ?, sweep_at = ?, used = ?, hand = ?, reason = ?, late = ?, accepted_at = ?,
    expires_at = ?, leased_at = ?, delivered_at = ?, answered_at = ?, ended_at = ?, owes = ?, sum = ?
WHERE key = ? AND state = ? AND attempt = ? AND seq = ? AND deferred = ?;

-- name: hand_over
-- The same for one whose attempt or seq changes.
UPDATE delivery SET attempt = ?, seq = ?, state = ?, deferred = ?, sweep_at = ?, used = ?, hand = ?, reason = ?,
    late = ?, accepted_at = ?, expires_at = ?, leased_at = ?, delivered_at = ?, answered_at = ?, ended_at = ?, owes = ?,
    sum = ?
WHERE key = ? AND state = ? AND attempt = ? AND seq = ? AND deferred = ?;

-- name: delivery
SELECT {delivery} FROM delivery d JOIN message m ON m.number = d.message WHERE d.key = ?;

-- name: deliveries
SELECT {delivery} FROM message m CROSS JOIN delivery d INDEXED BY delivery_message ON d.message = m.number
WHERE m.id = ? ORDER BY d.key;

-- name: parcel
SELECT {delivery}, {message} FROM delivery d JOIN message m ON m.number = d.message WHERE d.key = ?;

-- name: waiting_in_mailbox
SELECT {delivery}, {message}
FROM delivery d INDEXED BY delivery_open CROSS JOIN message m ON m.number = d.message
WHERE d.mailbox = ? AND d.state = 0 AND d.deferred = 0 AND d.state <= 3
ORDER BY d.lane, d.seq;

-- name: waiting_on_connection
SELECT {delivery}, {message}
FROM delivery d INDEXED BY delivery_connection CROSS JOIN message m ON m.number = d.message
WHERE d.connection = ? AND d.state = 0 AND d.deferred = 0 AND d.connection IS NOT NULL
ORDER BY d.lane, d.seq;

-- name: waiting_from
-- ?1 mailbox, ?2 sender, ?3 how many: due or not.
SELECT key FROM (
    SELECT * FROM (SELECT key, lane, seq FROM delivery INDEXED BY delivery_open
        WHERE mailbox = ?1 AND state = 0 AND deferred = 0 AND state <= 3 AND sender = ?2 ORDER BY lane, seq LIMIT ?3)
    UNION ALL SELECT * FROM (SELECT key, lane, seq FROM delivery INDEXED BY delivery_open
        WHERE mailbox = ?1 AND state = 0 AND deferred = 1 AND state <= 3 AND sender = ?2 ORDER BY lane, seq LIMIT ?3))
ORDER BY lane, seq LIMIT ?3;

-- name: leased
SELECT {delivery}
FROM delivery d INDEXED BY delivery_open CROSS JOIN message m ON m.number = d.message
WHERE d.mailbox = ? AND d.state = 1 AND d.state <= 3;

-- name: returned
SELECT {delivery}
FROM delivery d INDEXED BY delivery_returned CROSS JOIN message m ON m.number = d.message
WHERE d.mailbox = ? AND d.seq <= ? AND d.hand = ? AND d.state = 0 AND d.attempt > 0
ORDER BY d.seq;

-- name: handed_high
SELECT max(
    ifnull((SELECT seq FROM delivery INDEXED BY delivery_handed WHERE mailbox = ?1 AND attempt > 0
            ORDER BY seq DESC LIMIT 1), 0),
    ifnull((SELECT seq FROM removed WHERE mailbox = ?1), 0));

-- name: history_handed
SELECT seq, key FROM delivery INDEXED BY delivery_handed
WHERE mailbox = ? AND seq > ? AND seq <= ? AND attempt > 0 AND state IN (4, 5) ORDER BY seq LIMIT ?;

-- name: history_unhanded
-- Answered out of the queue, by a reply of someone who had only looked.
SELECT seq, key FROM delivery INDEXED BY delivery_unhanded
WHERE mailbox = ? AND seq > ? AND seq <= ? AND attempt = 0 AND state > 3 AND state IN (4, 5) ORDER BY seq LIMIT ?;

-- name: replay_floor
-- ?1 mailbox, ?2 since, ?3 rows. One above the last that is out of reach: removed, beyond the newest rows, or too old.
-- The time of the hand-over rises with seq, so the search for the last old one ends at the first that it meets.
SELECT 1 + max(
    ifnull((SELECT seq FROM removed WHERE mailbox = ?1), 0),
    ifnull((SELECT seq FROM delivery INDEXED BY delivery_handed WHERE mailbox = ?1 AND attempt > 0
            ORDER BY seq DESC LIMIT 1 OFFSET ?3), 0),
    ifnull((SELECT seq FROM delivery INDEXED BY delivery_handed WHERE mailbox = ?1 AND attempt > 0 AND leased_at < ?2
              AND seq > ifnull((SELECT seq FROM delivery INDEXED BY delivery_handed WHERE mailbox = ?1 AND attempt > 0
                                ORDER BY seq DESC LIMIT 1 OFFSET ?3), 0)
            ORDER BY seq DESC LIMIT 1), 0));

-- name: inbox_sums
-- ?1 mailbox, ?2 the states wanted as bits, ?3 sender or NULL. Read from the index alone.
SELECT count(*), ifnull(sum(NOT (?2 >> state & 1 AND (?3 IS NULL OR sender = ?3 COLLATE NOCASE))), 0)
FROM delivery INDEXED BY delivery_open WHERE mailbox = ?1 AND state <= 3;

-- name: inbox_open
-- ?1 mailbox, ?2 states as bits, ?3 sender or NULL, ?4 after, ?5 limit; so do the two below.
SELECT seq, key FROM delivery INDEXED BY delivery_open
WHERE mailbox = ?1 AND ?2 >> state & 1 AND (?3 IS NULL OR sender = ?3 COLLATE NOCASE) AND seq > ?4 AND state <= 3
ORDER BY seq LIMIT ?5;

-- name: inbox_handed
SELECT seq, key FROM delivery INDEXED BY delivery_handed
WHERE mailbox = ?1 AND ?2 >> state & 1 AND (?3 IS NULL OR sender = ?3 COLLATE NOCASE) AND seq > ?4 AND attempt > 0
  AND state > 3
ORDER BY seq LIMIT ?5;

-- name: inbox_unhanded
SELECT seq, key FROM delivery INDEXED BY delivery_unhanded
WHERE mailbox = ?1 AND ?2 >> state & 1 AND (?3 IS NULL OR sender = ?3 COLLATE NOCASE) AND seq > ?4 AND attempt = 0
  AND state > 3
ORDER BY seq LIMIT ?5;

-- name: oldest_unread
SELECT min(accepted_at) FROM delivery INDEXED BY delivery_open WHERE mailbox = ? AND state IN (0, 1) AND state <= 3;

-- name: dead
SELECT key FROM delivery INDEXED BY delivery_stuck WHERE key > ? AND (state = 3 OR state = 7) ORDER BY key LIMIT ?;

-- name: stuck
SELECT state FROM delivery INDEXED BY delivery_stuck WHERE state = 3 OR state = 7 ORDER BY key LIMIT ?;

-- name: owed
-- Came by a connection, has an outcome, and that connection has not heard of it.
SELECT {delivery} FROM delivery d INDEXED BY delivery_owed CROSS JOIN message m ON m.number = d.message
WHERE d.owes = ? AND d.state > 3 AND d.owes IS NOT NULL ORDER BY d.key LIMIT ?;

-- name: links_with_mail
-- From one connection that has some to the next, however much waits for each; ends also in an index out of order. Names
-- as bytes: bits of one may have flipped.
WITH RECURSIVE link(name) AS (
    SELECT (SELECT connection FROM delivery INDEXED BY delivery_connection
        WHERE connection IS NOT NULL AND state = 0 ORDER BY connection LIMIT 1)
    UNION ALL SELECT (SELECT connection FROM delivery INDEXED BY delivery_connection
        WHERE connection > link.name AND connection IS NOT NULL AND state = 0 ORDER BY connection LIMIT 1)
    FROM link WHERE link.name IS NOT NULL LIMIT 10000)
SELECT CAST(name AS BLOB) FROM link WHERE EXISTS (SELECT 1 FROM delivery INDEXED BY delivery_connection
    WHERE connection = link.name AND connection IS NOT NULL AND state = 0 AND deferred = 0);

-- name: links_owed
WITH RECURSIVE link(name) AS (
    SELECT (SELECT owes FROM delivery INDEXED BY delivery_owed
        WHERE owes IS NOT NULL AND state > 3 ORDER BY owes LIMIT 1)
    UNION ALL SELECT (SELECT owes FROM delivery INDEXED BY delivery_owed
        WHERE owes > link.name AND owes IS NOT NULL AND state > 3 ORDER BY owes LIMIT 1)
    FROM link WHERE link.name IS NOT NULL LIMIT 10000)
SELECT CAST(name AS BLOB) FROM link WHERE name IS NOT NULL;

-- name: carried
-- Walks over all that is open: asked when a connection is removed, or one of its two sides was put back to a copy.
SELECT key FROM delivery INDEXED BY delivery_open WHERE state <= 3 AND connection = ? AND state IN (0, 2) AND key > ?
ORDER BY key LIMIT ?;

-- name: backlog
-- ?1 connection, ?2 how many are counted at most: of those that are due, and of those that are not.
SELECT min(count(*), ?2), min(accepted_at) FROM (
    SELECT * FROM (SELECT accepted_at FROM delivery INDEXED BY delivery_connection
        WHERE connection = ?1 AND connection IS NOT NULL AND state = 0 AND deferred = 0 ORDER BY lane, seq LIMIT ?2)
    UNION ALL SELECT * FROM (SELECT accepted_at FROM delivery INDEXED BY delivery_connection
        WHERE connection = ?1 AND connection IS NOT NULL AND state = 0 AND deferred = 1 ORDER BY lane, seq LIMIT ?2));

-- name: due
SELECT key FROM delivery INDEXED BY delivery_sweep WHERE sweep_at <= ? AND sweep_at IS NOT NULL
ORDER BY sweep_at, key LIMIT ?;

-- name: next_sweep
SELECT min(sweep_at) FROM delivery INDEXED BY delivery_sweep WHERE sweep_at IS NOT NULL;

-- name: sums
-- What is open, for the sums that the store keeps in memory. Names as bytes: bits of one may have flipped.
SELECT CAST(mailbox AS BLOB), CAST(sender AS BLOB), count(*), sum(state = 0 AND deferred = 0), sum(state = 0), sum(size)
FROM delivery INDEXED BY delivery_open WHERE state <= 3 GROUP BY mailbox, sender;

-- ------------------------------------------------------------------------------------------------------------- removal

-- name: removal_marks
-- ?1 keys as a JSON array. How far retention has come in each mailbox once these are gone.
SELECT d.mailbox, max(max(d.seq), ifnull((SELECT r.seq FROM removed r WHERE r.mailbox = d.mailbox), 0))
FROM delivery d WHERE d.key IN (SELECT value FROM json_each(?1)) AND d.attempt > 0 GROUP BY d.mailbox;

-- name: put_removed
INSERT INTO removed (mailbox, seq, sum) VALUES (?, ?, ?)
ON CONFLICT (mailbox) DO UPDATE SET seq = excluded.seq, sum = excluded.sum;

-- name: remove_deliveries
DELETE FROM delivery WHERE key IN (SELECT value FROM json_each(?))
RETURNING message, mailbox, sender, state, deferred, size;

-- name: remove_messages
-- ?1 numbers as a JSON array: those that have no delivery left.
DELETE FROM message WHERE number IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM delivery INDEXED BY delivery_message WHERE delivery.message = message.number);

-- ---------------------------------------------------------------------------------------------------------- the others

-- name: put_agent
INSERT INTO agent (mailbox, handle, title, description, member, keyed, created_at, seen_at, adapter, sum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (mailbox) DO UPDATE SET handle = excluded.handle, title = excluded.title,
    description = excluded.description, member = excluded.member, keyed = excluded.keyed,
    created_at = excluded.created_at, seen_at = excluded.seen_at, adapter = excluded.adapter,
    sum = excluded.sum;

-- name: remove_agent
DELETE FROM agent WHERE mailbox = ?;

-- name: agent
SELECT mailbox, handle, title, description, member, keyed, created_at, seen_at, adapter, sum FROM agent
WHERE mailbox = ?;

-- name: agents
SELECT mailbox, handle, title, description, member, keyed, created_at, seen_at, adapter, sum FROM agent
ORDER BY mailbox;

-- name: put_token
INSERT INTO token (id, mailbox, digest, created_at, ends_at, sum) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET mailbox = excluded.mailbox, digest = excluded.digest, created_at = excluded.created_at,
    ends_at = excluded.ends_at, sum = excluded.sum;

-- name: remove_token
DELETE FROM token WHERE id = ?;

-- name: remove_tokens_of
DELETE FROM token WHERE mailbox = ?;

-- name: tokens
SELECT id, mailbox, digest, created_at, ends_at, sum FROM token ORDER BY id;

-- name: add_contact
INSERT INTO contact (one, other, at, sum) VALUES (?, ?, ?, ?)
ON CONFLICT (one, other) DO UPDATE SET at = excluded.at, sum = excluded.sum;

-- name: contacts
SELECT one, other, at, sum FROM contact WHERE one = ? ORDER BY at DESC, other LIMIT ?;

-- name: put_value
INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: value
SELECT value FROM meta WHERE name = ?;

-- name: put_note
INSERT INTO note (name, value, at, sum) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value, at = excluded.at, sum = excluded.sum;

-- name: remove_note
DELETE FROM note WHERE name = ?;

-- name: note
SELECT name, value, at, sum FROM note WHERE name = ?;

-- name: notes
-- Those whose names lie in a range, by name.
SELECT name, value, at, sum FROM note WHERE name >= ? AND name < ? ORDER BY name;

-- name: has_notes
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'note';

-- name: has_origin
SELECT 1 FROM pragma_table_info('message') WHERE name = 'origin';

-- name: all_agents
-- All columns that the table has.
SELECT * FROM agent ORDER BY mailbox;

-- name: all_tokens
SELECT * FROM token ORDER BY id;

-- name: all_notes
SELECT * FROM note ORDER BY name;

-- name: turns
SELECT {delivery} FROM delivery d INDEXED BY delivery_turn JOIN message m ON m.number = d.message
WHERE d.state = 1 AND d.hand = 'turn' ORDER BY d.key;

-- ------------------------------------------------------------------------------------------------------------- at open

-- name: held_before
-- What a dead hub held or put off. Nobody holds anything after a start, but for turns: whether those ran is looked at
-- first (bus/turns.py).
SELECT {raw_delivery} FROM delivery d INDEXED BY delivery_open CROSS JOIN message m ON m.number = d.message
WHERE d.state <= 3 AND (d.state = 1 AND d.hand IS NOT 'turn' OR d.state = 0 AND d.deferred = 1);

-- name: highest
-- No seq that was given may be given again, whatever meta says.
SELECT max(ifnull((SELECT max(key) FROM delivery), 0), ifnull((SELECT max(seq) FROM removed), 0));

-- name: all_messages
SELECT {message} FROM message m ORDER BY m.number;

-- name: all_deliveries
SELECT * FROM delivery ORDER BY key;

-- name: all_contacts
SELECT * FROM contact ORDER BY one, other;

-- name: all_removed
SELECT * FROM removed ORDER BY mailbox;

-- name: forget_value
DELETE FROM meta WHERE name = ?;

-- name: counts
-- How many rows there are of what no migration may lose.
SELECT (SELECT count(*) FROM message), (SELECT count(*) FROM delivery), (SELECT count(*) FROM agent),
    (SELECT count(*) FROM token);
