"""A hub that is the relay of Hermes' gateways: real hubs over real lines, no Desktop anywhere."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import Hub, eventually, hub
from tests.acceptance.linked import ENVIRONMENT, connect, connection, live, wait_knows, wait_state, wait_up
from tests.links.hermes import Gateway, a_gateway, until
from tests.rigs.gateway import desktop

pytestmark = pytest.mark.timeout(120)

HERE = "angelia"  # what gateways call a hub that was not given another name
TOKEN = "a token that nobody guesses"
Start = Callable[..., Any]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a gateway of a name."""
    async with AsyncExitStack() as stack:

        async def begin(name: str, **settings: Any) -> Gateway:
            return await stack.enter_async_context(a_gateway(tmp_path / name, token=TOKEN, **settings))

        yield begin


def secret(folder: Path, text: str = TOKEN) -> str:
    """A file that only its owner may read."""
    path = folder / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def link(here: Hub, gateway: Gateway, name: str) -> None:
    connect(here, name, f"ws://127.0.0.1:{gateway.port}", token_file=secret(gateway.home))
    wait_knows(here, "ops")


def ask(here: Hub, to: str, text: str, sender: str = "ann") -> dict[str, Any]:
    answer = here.post("/v1/ask", {"to": to, "text": text, "from": sender, "wait_seconds": 30}, seconds=60)
    assert answer.status == 200, answer.body
    return dict(answer.json)


async def test_agents_of_a_gateway_and_of_the_hub_ask_each_other(start: Start) -> None:
    rack = await start("rack", turns={"ops": [{"reply": "port 8443"}]})
    with hub(env=ENVIRONMENT) as here:
        live(here, "ann")
        link(here, rack, "Rack")
        assert ask(here, "ops", "which port?")["reply"]["text"] == "port 8443"
        await until(lambda: "ann" in [row["handle"] for row in rack.roster])
        id = rack.enqueue(f"ann@{HERE}", "and yours?", sender="ops")
        [question] = here.claim("ann", wait_seconds=20)
        assert (question["message"]["id"], question["message"]["from"]) == (id, "ops@Rack")
        here.kept("POST", f"/v1/messages/{id}/reply", {"text": "18900", "from": "ann"})
        assert (await rack.answered(id))["reply"] == "18900"


async def test_agents_of_two_gateways_reach_each_other_through_the_hub(start: Start) -> None:
    """What Hermes' Desktop does as long as it is open; both defaults are ``hermes``, and none is mistaken."""
    rack, lab = await start("rack"), await start("lab", turns={"default": [{"reply": "in the lab"}]})
    with hub(env=ENVIRONMENT) as here:
        link(here, rack, "Rack")
        link(here, lab, "Lab")
        await until(lambda: {"Lab"} <= {row["connection_id"] for row in rack.roster})
        assert "Rack" in {row["connection_id"] for row in lab.roster}
        assert "Rack" not in {row["connection_id"] for row in rack.roster}
        id = rack.enqueue("default@Lab", "where are you?")
        found = await rack.answered(id)
        assert (found["reply"], found["reason"]) == ("in the lab", "")
    assert lab.turns() == ["Message from \N{ROBOT FACE} hermes (@hermes@Rack): where are you?"]
    (params,) = lab.calls("bot_relay.deliver")
    assert (params["from_connection"], params["from_profile"]) == ("Rack", "default")


async def test_a_failure_at_the_far_gateway_is_the_senders_with_its_reason(start: Start) -> None:
    """11.2: offline is ``unknown`` at Hermes' own relay."""
    error = {"code": 5096, "message": "target_busy: default"}
    rack, lab = await start("rack"), await start("lab", turns={"default": [{"error": error}]})
    with hub(env=ENVIRONMENT) as here:
        link(here, rack, "Rack")
        link(here, lab, "Lab")
        await until(lambda: {"Lab"} <= {row["connection_id"] for row in rack.roster})
        assert (await rack.answered(rack.enqueue("default@Lab", "hi")))["reason"] == "target_busy"
        assert (await rack.answered(rack.enqueue("default@Shed", "hi")))["reason"] == "runtime_offline"
        assert "relay" in str(eventually(lambda: connection(here, "Rack").get("warning")))


async def test_a_gateway_with_a_sign_in_is_dialled_again_with_a_new_ticket(start: Start) -> None:
    cloud = await start("cloud", gated={"provider": "password", "users": {"me": TOKEN}})
    with hub(env=ENVIRONMENT) as here:
        target = f"ws://127.0.0.1:{cloud.port}"
        connect(here, "Cloud", target, user="me", password_file=secret(cloud.home))
        wait_knows(here, "ops")
        assert "heard" in ask(here, "ops", "hi")["reply"]["text"]
        await cloud.stop()
        eventually(lambda: not connection(here, "Cloud")["up"], 30)
        waits = here.send("ops", "for later", "ann", intent="request")["id"]
        assert here.state(waits) == "queued"
        await cloud.start()
        wait_up(here, "Cloud")
        wait_state(here, waits, "answered")
    assert len(cloud.events("connect")) == 2
    assert TOKEN not in here.output()


async def test_a_hub_that_is_killed_begins_no_turn_twice_and_goes_on_with_the_rest(start: Start) -> None:
    """10.11, #111021: the relay dies between deliver and reply."""
    rack = await start("rack", turns={"ops": [{"hold": "never"}, {}]})
    with hub(env=ENVIRONMENT) as here:
        live(here, "ann")
        link(here, rack, "Rack")
        first, second = (here.send("ops", f"{number}", "ann", intent="request")["id"] for number in (1, 2))
        await until(lambda: rack.turns("ops"))
        wait_state(here, first, "forwarded")
        here.kill9()
        rack.go("never")
        id = rack.enqueue(f"ann@{HERE}", "hello?")
        here.start()
        wait_state(here, second, "answered")
        assert here.state(first) == "forwarded"  # nobody knows; it is offered again when its turn must have ended
        await until(lambda: here.state(id) == "queued")
        assert sorted(each["text"][:9] for each in here.poll("ann")) == ["hello?", "ops heard"]
    assert [text[-1] for text in rack.turns("ops")] == ["1", "2"]


async def test_an_outcome_of_what_a_gateway_took_comes_by_its_line_alone(start: Start) -> None:
    """Whoever is at our own gateway without a token is no relay of a connection of ours."""
    rack = await start("rack", turns={"ops": [{"hold": "asked", "reply": "true"}]})
    with hub(env=ENVIRONMENT) as here:
        live(here, "ann")
        link(here, rack, "Rack")
        id = here.send("ops", "may I?", "ann", intent="request")["id"]
        await until(lambda: rack.turns("ops"))
        wait_state(here, id, "forwarded")
        async with desktop(here.port) as stranger:
            await stranger.result("bot_relay.reply", id=id, reply="forged")
            await stranger.result("bot_relay.reply", id=id, error="no", reason="agent_blocked")
        assert here.state(id) == "forwarded"
        rack.go("asked")
        wait_state(here, id, "answered")
        assert here.receipt(id)["reply"]["text"] == "true"


async def test_a_connection_that_is_removed_is_forgotten_on_both_sides(start: Start) -> None:
    """10.13, #111262."""
    rack = await start("rack")
    with hub(env=ENVIRONMENT) as here:
        live(here, "ann")
        link(here, rack, "Rack")
        await until(lambda: rack.roster)
        assert here.call("DELETE", "/v1/connections/Rack", admin=True).status in (200, 204)
        await until(lambda: rack.roster == [])
        assert here.post("/v1/messages", {"to": "ops@Rack", "text": "hi", "from": "ann"}).status == 404
