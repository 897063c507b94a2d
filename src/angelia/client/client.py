"""``Client``: all calls of a hub, and the stream of an agent's mail. ``angelia.Client`` is this one.

    with angelia.Client("http://127.0.0.1:18900", name="scout") as hub:
        hub.send("hermes", "hello")
        for item in hub.stream():
            print(item.data["message"]["text"])
            hub.ack(item.data["lease"]["token"])

What must stay true: the stream has a connection of its own, so that the other calls work while it is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Generator
from contextlib import suppress

from angelia.client.calls import Calls
from angelia.client.connection import Connection
from angelia.client.errors import HubError, NoHub, TimedOut
from angelia.client.stream import Item, Stream

REMEMBERED = 10_000


class Client(Calls):
    """One caller at one hub, with streams."""

    def follow(
        self, *, ack: str = "manual", last_event_id: str = "", notice: Callable[[str], None] = lambda _: None
    ) -> Stream:
        """The bare stream of one's own mailbox: nothing dropped, and it can be closed from another thread."""
        connection = Connection(self.connection.address, self.connection.token)
        path = f"/v1/agents/{self._me()}/stream?ack={ack}"
        return Stream(connection, path, last_event_id=last_event_id, notice=notice)

    def stream(
        self,
        *,
        ack: str = "manual",
        last_event_id: str = "",
        finished: Container[str] = (),
        notice: Callable[[str], None] = lambda _: None,
    ) -> Generator[Item, None, None]:
        """One's own mail for ever, each message once.

        ``manual``: a message is settled by ``ack``; ``finished`` are ids that were dealt with before: when one comes
        again it is acked and dropped. ``auto``: a message counts as dealt with once the next one is asked for.
        """
        seen: OrderedDict[str, None] = OrderedDict()
        for item in self.follow(ack=ack, last_event_id=last_event_id, notice=notice):
            if item.kind == "bye":
                continue
            known = message_id(item)
            lease = lease_token(item)
            if known and (known in finished or (ack == "auto" and known in seen)):
                if lease:
                    with suppress(HubError, NoHub, TimedOut):  # then it comes once more
                        self.ack(lease)
                continue
            yield item
            if known and ack == "auto":
                seen[known] = None
                if len(seen) > REMEMBERED:
                    seen.popitem(last=False)


def message_id(item: Item) -> str:
    """The id of the message in an item; "" where it holds none."""
    message = item.data.get("message")
    found = message.get("id") if item.kind == "message" and isinstance(message, dict) else None
    return found if isinstance(found, str) else ""


def lease_token(item: Item) -> str:
    """The token of the lease in an item; "" where it holds none."""
    lease = item.data.get("lease")
    found = lease.get("token") if isinstance(lease, dict) else lease
    return found if isinstance(found, str) else ""
