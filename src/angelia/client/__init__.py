"""The Python client: what the command line, the examples and the tests call a hub with."""
