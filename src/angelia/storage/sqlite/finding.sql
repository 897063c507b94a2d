-- The statements that find again: the search index, conversations. How the file is read: queries.py; its parts stand in
-- queries.sql.

-- --------------------------------------------------------------------------------------------------- the search index

-- name: to_index
-- What the index is made of, as bytes: what flipped on the disk must not stop it.
SELECT number, CAST(sender AS BLOB), CAST(recipient AS BLOB), CAST(text AS BLOB), body FROM message WHERE number > ?
ORDER BY number;

-- name: message_to_index
SELECT number, CAST(sender AS BLOB), CAST(recipient AS BLOB), CAST(text AS BLOB), body FROM message WHERE number = ?;

-- name: mailboxes_of
-- ?1 number, ?2 how many at most.
SELECT mailbox FROM delivery INDEXED BY delivery_message WHERE message = ? LIMIT ?;

-- name: index
INSERT INTO search (rowid, text, who) VALUES (?, ?, ?);

-- name: unindex
DELETE FROM search WHERE rowid BETWEEN ? AND ?;

-- name: merge_index
-- Merge some pages of it.
INSERT INTO search (search, rank) VALUES ('merge', ?);

-- name: index_blocks
-- ?1 ids as a JSON array.
SELECT id, block FROM search_data WHERE id IN (SELECT value FROM json_each(?1));

-- name: put_index_sum
INSERT OR REPLACE INTO search_sum (id, sum) VALUES (?, ?);

-- name: drop_index_sums
-- ?1 ids as a JSON array.
DELETE FROM search_sum WHERE id IN (SELECT value FROM json_each(?1));

-- name: summed_blocks
-- ?1 after, ?2 limit.
SELECT d.id, d.block, s.sum FROM search_data d LEFT JOIN search_sum s ON s.id = d.id WHERE d.id > ?1
ORDER BY d.id LIMIT ?2;

-- name: text_lengths
-- ?1 after, ?2 limit. Nothing is found by them, but their pages have to be read where an entry is taken out.
SELECT id FROM search_docsize WHERE id > ?1 ORDER BY id LIMIT ?2;

-- name: marks
-- ?1 after, ?2 limit.
SELECT number FROM search_again WHERE number > ?1 ORDER BY number LIMIT ?2;

-- name: index_opens
-- Fails where FTS5 cannot read how the index is set.
SELECT count(*) FROM search_config, (SELECT rowid FROM search WHERE rowid = 0);

-- name: last_signs
-- ?1 segment, ?2 how many at most.
-- What FTS5 finds a block by: the least word in it that is not before it, shortened; its page * 2, and a mark.
SELECT segid, term, pgno FROM search_idx WHERE segid = ? ORDER BY term DESC LIMIT ?;

-- name: summed_signs
-- ?1, ?2 after, ?3 limit. The sum of a sign stands under the id of its block, below zero. One of a sign that is gone
-- may be left: until its place is taken again.
SELECT x.segid, x.term, x.pgno, s.sum FROM search_idx x LEFT JOIN search_sum s ON s.id = -((x.segid << 37) + (x.pgno >> 1))
WHERE (x.segid, x.term) > (?1, ?2) ORDER BY x.segid, x.term LIMIT ?3;

-- name: index_again
INSERT OR IGNORE INTO search_again (number) VALUES (?);

-- name: search_again
SELECT number FROM search_again ORDER BY number LIMIT ?;

-- name: done_again
DELETE FROM search_again WHERE number = ?;

-- name: newest_number
SELECT ifnull(max(number), 0) FROM message;

-- --------------------------------------------------------------------------------------- conversations and what is found

-- name: search
-- ?1 an expression of FTS5, ?2 rowid, ?3 how many at most. The latest first, which FTS5 can do without a sort.
SELECT rowid FROM search WHERE search MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC LIMIT ?3;

-- name: thread_of
SELECT ifnull(thread, id) FROM message WHERE id = ?;

-- name: thread_at
SELECT ifnull(thread, id) FROM message WHERE number = ?;

-- name: latest
-- ?1 number, ?2 how many at most: what came before it, the latest first.
SELECT number FROM message WHERE number < ? ORDER BY number DESC LIMIT ?;

-- name: in_thread
-- ?1 thread, ?2 number, ?3 how many at most: what was said after it.
SELECT number, sender FROM (
    SELECT number, sender FROM message INDEXED BY message_id WHERE id = ?1 AND thread IS NULL AND number > ?2
    UNION ALL
    SELECT number, sender FROM message INDEXED BY message_thread WHERE thread = ?1 AND number > ?2
) ORDER BY number LIMIT ?3;

-- name: in_thread_latest
-- ?1 thread, ?2 how many at most: all of it, the latest first.
SELECT number, sender, recipient FROM (
    SELECT number, sender, recipient FROM message INDEXED BY message_id WHERE id = ?1 AND thread IS NULL
    UNION ALL
    SELECT number, sender, recipient FROM message INDEXED BY message_thread WHERE thread = ?1
) ORDER BY number DESC LIMIT ?2;

-- name: states_of
SELECT state, count(*) FROM delivery INDEXED BY delivery_message WHERE message = ? GROUP BY state;

-- name: ends_of
-- Who sent it and to whom as addressed, without reading its text.
SELECT sender, recipient FROM message WHERE number = ?;

-- name: created_at
SELECT created_at FROM message WHERE number = ?;
