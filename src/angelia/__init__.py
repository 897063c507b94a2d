"""Angelia: a durable message bus and relay for AI agents. ``angelia.Client`` is its Python client."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.client.client import Client as Client

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load the client when it is asked for: ``import angelia`` alone stays cheap."""
    if name == "Client":
        return import_module("angelia.client.client").Client
    raise AttributeError(f"module 'angelia' has no attribute '{name}'")
