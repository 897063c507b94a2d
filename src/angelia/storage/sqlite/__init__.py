"""The store of one machine: SQLite, one writing thread, commits in groups."""
