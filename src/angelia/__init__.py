"""Angelia: a durable message bus and relay for AI agents."""

__version__ = "0.1.0"
