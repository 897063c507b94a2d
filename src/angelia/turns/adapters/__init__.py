"""One file for each kind of agent, behind the small port of ``port.py``."""
