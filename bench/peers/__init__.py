"""What the hub is measured against."""

from bench.peers import jetstream, redis
from bench.peers.peer import Peer


def installed() -> list[type[Peer]]:
    """The peers that need a program of their own, and have it here."""
    found: list[type[Peer]] = []
    if jetstream.program():
        found.append(jetstream.JetStream)
    if redis.program():
        found.append(redis.Redis)
    return found
