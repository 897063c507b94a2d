"""Hubs that are linked, for tests: how a connection is made, and when something has come over it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.acceptance.hub import Hub, eventually, hub

LINK_SECONDS = 20.0  # a hub that was away is dialled again within some seconds; a busy machine takes longer
ENVIRONMENT = {"ANGELIA_HERMES_HOME": "off"}


@contextmanager
def hubs(*names: str, **env: str) -> Iterator[list[Hub]]:
    """Hubs of these names, each a process with a folder and a port; none knows any other yet."""
    with ExitStack() as stack:
        yield [stack.enter_context(hub(env={**ENVIRONMENT, "ANGELIA_HUB_NAME": name, **env})) for name in names]


def connect(here: Hub, name: str, target: str, **more: Any) -> dict[str, Any]:
    """Make a connection; it is dialled before this returns, and it is up."""
    answer = here.call("PUT", f"/v1/connections/{name}", {"target": target, **more}, admin=True)
    assert answer.status in (200, 201), (answer.status, answer.body)
    found = dict(answer.json)
    assert found["up"], found
    return found


def connection(here: Hub, name: str) -> dict[str, Any]:
    """How a connection stands, as its hub's owner sees it."""
    rows = here.get("/v1/connections", admin=True).json["connections"]
    return next((dict(row) for row in rows if row["name"].lower() == name.lower()), {})


def wait_up(here: Hub, name: str, seconds: float = LINK_SECONDS) -> None:
    """Until a connection is up."""
    eventually(lambda: connection(here, name).get("up"), seconds, f"{name} is up: {connection(here, name)}")


def knows(here: Hub, handle: str) -> bool:
    """Whether an agent elsewhere is in a hub's roster."""
    rows = here.get("/v1/agents", admin=True).json["agents"]
    return any(row["handle"].partition("@")[0] == handle and row["connection"] != "local" for row in rows)


def wait_knows(here: Hub, *handles: str, seconds: float = LINK_SECONDS) -> None:
    """Until all of these are in a hub's roster, as agents elsewhere."""
    for handle in handles:
        eventually(lambda: knows(here, handle), seconds, f"{handle} is known: {here.get('/v1/agents').body!r}")  # noqa: B023 - looked at before the next


def live(here: Hub, *handles: str) -> None:
    """Make agents known at their own hub: they have read there."""
    for handle in handles:
        here.claim(handle)


def wait_state(here: Hub, message_id: str, *states: str, seconds: float = LINK_SECONDS) -> str:
    """Until a message's one delivery is in one of these states, as its hub's owner sees it."""

    def look() -> str | None:
        state = str(here.get(f"/v1/messages/{message_id}", admin=True).json["deliveries"][0]["state"])
        return state if state in states else None

    return str(eventually(look, seconds, f"{message_id} is in {states}"))


def take(here: Hub, agent: str, seconds: float = LINK_SECONDS) -> dict[str, Any]:
    """The one message that an agent gets, by a poll, once it is there."""
    [found] = eventually(lambda: here.poll(agent, wait=1), seconds, f"mail for {agent}")
    return dict(found)
