-- How much waits for a connection: what is not due yet counts, too.
DROP INDEX delivery_connection;
CREATE INDEX delivery_connection ON delivery (connection, deferred, lane, seq)
    WHERE connection IS NOT NULL AND state = 0;
