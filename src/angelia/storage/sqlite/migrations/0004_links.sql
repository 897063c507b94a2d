-- Links: what crosses to other hubs, and what is owed to those from whom it came.

-- What the sender said where the message was first accepted, as JSON (model/envelope.py, Origin); NULL where it never
-- leaves its hub.
ALTER TABLE message ADD COLUMN origin TEXT;

-- The connection that it came by, as long as that one has not been told what became of it.
ALTER TABLE delivery ADD COLUMN owes TEXT;
CREATE INDEX delivery_owed ON delivery (owes, key) WHERE owes IS NOT NULL AND state > 3;
