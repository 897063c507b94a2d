"""Where what answers a message goes: back to its sender, and to nobody else who is called so by now.

What must stay true: an answer to somebody elsewhere goes to the hub that the question came from, known by its id,
whatever that hub is called here today; where no link leads there it waits until one does. A name that was given up and
is another hub's now leads no answer astray.
"""

from dataclasses import replace

from angelia.bus.core import Bus
from angelia.bus.neighbours import place_id
from angelia.model.address import Address, parse
from angelia.model.envelope import Origin
from angelia.model.errors import RuntimeOffline


def home_of(origin: Origin | None) -> str | None:
    """The id of the hub, or of the place behind one, that a message came from; None where it came by no link."""
    if origin is None:
        return None
    _, at, name = origin.sender.partition("@")
    return place_id(origin.hub, name) if at else origin.hub


def way_back(bus: Bus, sender: str, home: str | None) -> Address | None:
    """The way to ``sender`` that is known today; None for one here, and where none leads to ``home``."""
    handle, _, name = sender.partition("@")
    behind = bus.neighbours.behind(name) if name else None
    if behind is not None and home is not None and behind.hub not in (None, home):
        behind = bus.neighbours.way_to(home)
    return None if behind is None else Address(handle, behind.name, carrier=behind.link)


def address_back(bus: Bus, sender: str, home: str | None = None) -> Address:
    """Where an answer to ``sender`` goes; ``home``: where its question came from. Where no link leads there it waits
    under the name that it had. Raises ``RuntimeOffline`` where that is another hub's."""
    if (found := way_back(bus, sender, home)) is not None:
        return found
    address = parse(sender)
    if home is None or address.is_local:
        return address
    if bus.neighbours.behind(address.connection) is not None:
        raise RuntimeOffline(
            f"The hub of {sender} is not connected here any more, and another has its name. Nothing was stored."
        )
    return replace(address, carrier=address.connection.lower())
