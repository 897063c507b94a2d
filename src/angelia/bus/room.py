"""Which mailboxes have room for a message, and what its sender is told of those that have none.

What must stay true:

- It is decided inside the unit, from sums that are at hand: it costs the same, whatever waits.
- Nobody has more than a sender's share of a mailbox waiting there, by count or by bytes. But one message goes, whatever
  its size, where its sender has nothing waiting.
- The last tenth of a mailbox is kept from whoever has not proved its name. Names without proof cost nothing to make up;
  so those who have proof are not locked out by any number of them, nor is the person, nor an answer that is awaited.
- Proof is what was shown to this hub. What a neighbour says of its agents is none here: their mail waits at that hub.
- An answer is awaited once: the first to what the mailbox's owner has sent. It has no share that could be full.

What became of something accepted (``Draft.outcome``, the hub's notices) is none of this: no mailbox is too full for it.
"""

from collections.abc import Sequence

from angelia.bus.draft import Draft
from angelia.bus.ports import Load, Tx
from angelia.model.address import Address
from angelia.model.envelope import Lane, size_of
from angelia.model.errors import CallerError, MailboxFull
from angelia.model.limits import Limits

AGAIN_SECONDS = 5  # a mailbox that somebody reads has room by then


def with_room(
    limits: Limits, tx: Tx, draft: Draft, recipients: Sequence[Address], *, awaited: bool
) -> tuple[list[Address], list[tuple[str, CallerError]]]:
    """Those whose mailbox takes it; the others with their refusal. Raises the first refusal when nobody has room.

    ``awaited``: it is the first answer to what the only recipient has sent.
    """
    size, me = size_of(draft.text, draft.body), draft.sender.lower()
    most, most_bytes = limits.mailbox_deliveries, limits.mailbox_bytes
    if not (awaited or _proved(draft)):
        most, most_bytes = limits.mailbox_deliveries_unproved, limits.mailbox_bytes_unproved
    room: list[Address] = []
    refused: list[tuple[str, CallerError]] = []
    for address in recipients:
        load = tx.load(address.mailbox)
        if load.open < most and load.bytes + size <= most_bytes and (awaited or _has_share(limits, load, me, size)):
            room.append(address)
        else:
            refused.append((str(address), _refusal(limits, address, load, me, size)))
    if not room:
        raise refused[0][1]
    return room, refused


def _proved(draft: Draft) -> bool:
    """Whether this hub knows whose it is. Its person's lane is opened to nobody else."""
    return draft.crossing is None and (draft.verified or draft.lane is Lane.PERSON)


def _has_share(limits: Limits, load: Load, me: str, size: int) -> bool:
    mine = load.bytes_by_sender.get(me)
    return mine is None or (
        mine + size <= limits.mailbox_bytes_per_sender and load.by_sender[me] < limits.mailbox_deliveries_per_sender
    )


def _refusal(limits: Limits, address: Address, load: Load, me: str, size: int) -> MailboxFull:
    """Which bound it was, and what helps."""
    mine, my_bytes = load.by_sender.get(me, 0), load.bytes_by_sender.get(me, 0)
    whose, helps = "", "try again later"
    if load.open >= limits.mailbox_deliveries:
        holds, limit = f"{load.open} messages", limits.mailbox_deliveries
    elif load.bytes + size > limits.mailbox_bytes:
        holds, limit = f"{load.bytes} bytes, and this has {size}", limits.mailbox_bytes
    elif mine >= limits.mailbox_deliveries_per_sender:
        holds, limit = f"{mine} of yours", limits.mailbox_deliveries_per_sender
    elif mine and my_bytes + size > limits.mailbox_bytes_per_sender:
        holds, limit = f"{my_bytes} bytes of yours, and this has {size}", limits.mailbox_bytes_per_sender
    else:
        whose, helps = " for senders without proof of their name", "try again later, or with the token of your name"
        if load.open >= limits.mailbox_deliveries_unproved:
            holds, limit = f"{load.open} messages", limits.mailbox_deliveries_unproved
        else:
            holds, limit = f"{load.bytes} bytes, and this has {size}", limits.mailbox_bytes_unproved
    detail = f"The mailbox of {address} holds {holds}; the limit is {limit}{whose}. Nothing was stored for it; {helps}."
    return MailboxFull(detail, limit=limit, retry_after_seconds=AGAIN_SECONDS)
