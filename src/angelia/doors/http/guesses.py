"""Wrong tokens, counted by the address that they come from, so that guessing is slow.

What must stay true: only the answer to a wrong token waits; a right one is looked up first and never waits, whoever
else guesses from the same address, so nobody can be locked out. An address is counted as one however it is written:
IPv4 inside IPv6 is that IPv4, and IPv6 counts by its /64, which is what one network gets. Memory is bounded.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from math import ceil

from angelia.model.errors import RateLimited

AT_ONCE = 10  # answered without a wait: a program with an old token, started again a few times
SECONDS_EACH = 1.0  # between two answers after that
LONGEST_SECONDS = 5.0  # that one waits; beyond it so many are waiting that the next is told to come later
ADDRESSES = 4096  # some hundred bytes each; the one that was quiet for longest is forgotten first


class Guesses:
    """When the answer to the next wrong token of an address is due. ``clock``: monotonic seconds; ``most``: addresses
    that are remembered."""

    def __init__(self, clock: Callable[[], float], most: int = ADDRESSES) -> None:
        self._clock, self._most = clock, most
        self._paid_until: OrderedDict[str, float] = OrderedDict()

    def wait(self, address: str) -> float:
        """A wrong token came from there: the seconds that its answer waits. Raises ``RateLimited`` beyond the bound."""
        who, now = canonical(address), self._clock()
        until = max(self._paid_until.get(who, now), now) + SECONDS_EACH
        seconds = until - now - AT_ONCE * SECONDS_EACH
        if seconds > LONGEST_SECONDS:
            raise RateLimited(
                "Too many wrong tokens came from your address; the answers to more are held back. Nothing was done.",
                retry_after_seconds=ceil(seconds),
            )
        self._paid_until[who] = until
        self._paid_until.move_to_end(who)
        if len(self._paid_until) > self._most:
            self._paid_until.popitem(last=False)
        return max(seconds, 0.0)


def canonical(address: str) -> str:
    """What an address counts as; itself where it is none."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
