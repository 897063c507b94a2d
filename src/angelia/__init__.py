"""Angelia: a durable message bus for AI agents. ``angelia.Client`` and ``AsyncClient`` are its Python clients."""

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.client.aio.client import AsyncClient as AsyncClient
    from angelia.client.client import Client as Client

__version__ = "0.1.0"

_CLIENTS = {"Client": "angelia.client.client", "AsyncClient": "angelia.client.aio.client"}


def __getattr__(name: str) -> object:
    """Load a client when it is asked for: ``import angelia`` alone stays cheap."""
    if name in _CLIENTS:
        return getattr(import_module(_CLIENTS[name]), name)
    raise AttributeError(f"module 'angelia' has no attribute '{name}'")
