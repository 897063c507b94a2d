"""The command line: a table of commands, a module for each, and what they print with."""
