"""Hands that run one turn of an agent for each message, and bring its answer back."""
