"""Stores: each fills ``bus.ports.Store`` and passes ``tests/conformance``."""
