"""Bytes to model and back: pure functions and state machines that never wait."""
