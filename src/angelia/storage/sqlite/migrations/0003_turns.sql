-- Turns: how each agent is woken, what the hub remembers for its hands, and what a dead hub was in the middle of.

-- How it is reached, as JSON (turns/adapters/registry.py); NULL where nothing wakes it.
ALTER TABLE agent ADD COLUMN adapter BLOB;

-- What a hand remembers over a restart, such as the name that an agent gives its conversation. at: UTC ms.
CREATE TABLE note (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL,
    at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What turns run for: few at any time.
CREATE INDEX delivery_turn ON delivery (key) WHERE state = 1 AND hand = 'turn';
