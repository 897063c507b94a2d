"""A network that loses packets: a link and a stream go on over it, and whatever was sent is there, once (F119).

How both live through a network that is slow, stands still, or cuts off is in `test_bad_network.py`.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.acceptance.hub import Hub, environment, eventually
from tests.acceptance.linked import ENVIRONMENT, connection, wait_knows
from tests.acceptance.lossy import Wire, why_not
from tests.rigs.neighbourhood import FarHub

LOSS = 0.05
MESSAGES = 50
CROSS_SECONDS = 40.0

# A client at the other end of the wire.
READER = """
import sys
from angelia import Client
url, token, count = sys.argv[1:]
with Client(url, name="reader", token=token) as client:
    messages = client.messages()
    for _ in range(int(count)):
        print(next(messages)["text"], flush=True)
    messages.close()
"""


@pytest.fixture
def wire() -> Iterator[Wire]:
    if reason := why_not():
        pytest.skip(reason)
    with Wire(LOSS, 1) as made:
        yield made


def far_hub(wire: Wire, number: int, name: str) -> FarHub:
    return FarHub(
        env={**ENVIRONMENT, "ANGELIA_HUB_NAME": name, "ANGELIA_ALLOWED_HOSTS": wire.address(number)},
        args=("--host", "127.0.0.1", "--host", wire.address(number), "--behind-proxy"),
        prefix=wire.prefix(number),
    )


def reading(wire: Wire, at: Hub) -> "subprocess.Popen[str]":
    """A reader of a hub at the first end, at the other one; it ends when it has all."""
    assert at.run("join", "reader").returncode == 0
    token = (at.folder / "tokens" / "reader").read_text().strip()
    url = f"http://{wire.address(0)}:{at.port}"
    words = [*wire.prefix(1), sys.executable, "-c", READER, url, token, str(MESSAGES)]
    return subprocess.Popen(words, env=environment(at.base, at.source), stdout=subprocess.PIPE, text=True)


def all_taken(at: Hub, agent: str, found: list[str]) -> bool:
    """Take what is there, but for notices of who came."""
    found.extend(text for each in at.poll(agent, limit=100) if (text := str(each["text"])).startswith("to "))
    return len(found) >= MESSAGES


@pytest.mark.timeout(120)
def test_all_arrives_though_one_packet_in_twenty_is_lost(wire: Wire) -> None:
    """Over a link, both ways at once, and by a stream: in order, once, by the line that was made at the beginning."""
    with ExitStack() as stack:
        near, far = (stack.enter_context(far_hub(wire, number, name)) for number, name in enumerate(("near", "far")))
        near.claim("ann"), far.claim("bob")
        code = far.post("/v1/pairing").json["code"]
        wanted = {"target": f"ws://{wire.address(1)}:{far.port}", "code": code}
        assert near.call("PUT", "/v1/connections/far", wanted).status in (200, 201)
        wait_knows(near, "bob")
        wait_knows(far, "ann")
        since = connection(near, "far")["since"]
        reader = stack.enter_context(reading(wire, near))
        stack.callback(reader.kill)
        for number in range(MESSAGES):
            near.send("bob", f"to bob {number}", "ann")
            far.send("ann", f"to ann {number}", "bob")
            near.send("reader", f"to reader {number}", "ann")
        for at, name in ((far, "bob"), (near, "ann")):
            found: list[str] = []
            eventually(lambda: all_taken(at, name, found), CROSS_SECONDS, f"{name} has all")  # noqa: B023
            assert found == [f"to {name} {number}" for number in range(MESSAGES)]
            assert [each["text"] for each in at.poll(name) if each["text"] in found] == []
        assert reader.communicate(timeout=CROSS_SECONDS)[0].splitlines() == [f"to reader {n}" for n in range(MESSAGES)]
        assert connection(near, "far")["since"] == since
    assert wire.lost > 5, (wire.sent, wire.lost)
