"""The door for a Hermes install on this machine: envelopes in its files, answers in its files."""
