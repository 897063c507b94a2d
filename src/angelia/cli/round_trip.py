"""``angelia doctor`` writes to itself: through each door, the whole way, and back.

What must stay true: it uses a name that nobody has, waits seconds at most at each step, and takes the name away again,
with the mail that is left if something failed on the way. What it wrote stays as one conversation of the history.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote

from angelia.cli.checks import OK, WRONG, Finding
from angelia.client.calls import Calls
from angelia.client.connection import Connection
from angelia.client.errors import ClientError
from angelia.client.find import Address
from angelia.client.ids import new_id
from angelia.protocol.sse import Parser

STEP_SECONDS = 5.0


def round_trips(addresses: list[Address], socket: Address | None) -> Iterator[Finding]:
    """One finding for each way in, and for each a stream."""
    name, thread = f"doctor-{os.urandom(4).hex()}", new_id()
    try:
        # Claims first: a stream that has just ended may still have mail in its hands for a moment.
        for address in addresses:
            yield _claimed(address, name, thread)
        for address in addresses:
            yield _streamed(address, name, thread)
    finally:
        if socket is not None:
            with suppress(ClientError), Calls(socket, answer_seconds=STEP_SECONDS) as calls:
                calls.remove_agent(name)


def _claimed(address: Address, name: str, thread: str) -> Finding:
    """Send, claim, ack."""
    title, step = f"message by {address}", "making my name known"
    try:
        with Calls(address, name=name, answer_seconds=STEP_SECONDS, patience_seconds=0) as calls:
            calls.claim()
            step = "sending"
            sent = calls.send(name, f"to myself, by {address}", intent="inform", thread=thread)
            step = "claiming"
            taken = calls.claim(limit=10, wait_seconds=STEP_SECONDS)["deliveries"]
            step = "acknowledging"
            for one in taken:
                calls.ack(one["lease"]["token"])
            if sent["id"] not in [one["message"]["id"] for one in taken]:
                return Finding(title, WRONG, "what was sent was not handed over", "look at the hub's log")
    except (ClientError, KeyError) as error:
        return Finding(title, WRONG, f"{step} failed: {error}", "look at the hub's log")
    return Finding(title, OK, "sent, claimed and acknowledged")


def _streamed(address: Address, name: str, thread: str) -> Finding:
    """Open the stream, send, see it come."""
    title, text, step = f"stream by {address}", f"to my stream, by {address}", "opening it"
    listening, parser = Connection(address), Parser()
    try:
        with Calls(address, name=name, answer_seconds=STEP_SECONDS, patience_seconds=0) as calls:
            stream = listening.open(f"/subscribe?agent={quote(name)}", {}, seconds=STEP_SECONDS)
            if stream.status != 200:
                return Finding(title, WRONG, f"the hub answers {stream.status}", "look at the hub's log")
            step = "sending"
            calls.send(name, text, intent="inform", thread=thread)
            step = "reading"
            while piece := stream.read1(65536):
                if any(text in event.data for event in parser.feed(piece)):
                    return Finding(title, OK, "what is sent comes at once")
    except (ClientError, OSError) as error:
        return Finding(title, WRONG, f"{step} failed: {str(error) or 'too slow'}", "look at the hub's log")
    finally:
        listening.close()
    return Finding(title, WRONG, "the stream ended and nothing came", "look at the hub's log")
