"""Two machines that are never up together: question and answer go through a third, which is always on."""

import pytest

from tests.acceptance.hub import Hub
from tests.acceptance.linked import connect, hubs, live, take, wait_knows, wait_state, wait_up

pytestmark = pytest.mark.timeout(180)


def introduce(alpha: Hub, beta: Hub, server: Hub) -> None:
    """Each has been up with the server once, and never with the other."""
    for hub in (alpha, beta):
        hub.stop()
    for hub, agent in ((beta, "bob"), (alpha, "ann")):
        hub.start()
        live(hub, agent)
        connect(hub, "server", f"ws://127.0.0.1:{server.port}")
        wait_knows(server, agent)
        hub.stop()


@pytest.mark.parametrize("name", ["bob", "bob@beta"])
def test_a_question_and_its_answer_pass_a_hub_between_machines_that_are_never_up_together(name: str) -> None:
    with hubs("alpha", "beta", "server") as (alpha, beta, server):
        introduce(alpha, beta, server)

        alpha.start()
        wait_up(alpha, "server")
        wait_knows(alpha, "bob")
        asked = alpha.send(name, "is the door shut?", "ann", intent="request")["id"]
        wait_state(alpha, asked, "forwarded")
        alpha.stop()

        beta.start()
        question = take(beta, "bob")
        assert question["text"] == "is the door shut?"
        assert question["_meta"]["id"] == asked
        assert question["_meta"]["from"].partition("@")[0] == "ann"
        replied = beta.kept("POST", f"/v1/messages/{asked}/reply", {"text": "it is", "from": "bob"}).json["id"]
        wait_state(beta, replied, "forwarded", "delivered")
        beta.stop()

        alpha.start()
        answer = take(alpha, "ann")
        assert answer["text"] == "it is"
        assert answer["_meta"]["in_reply_to"] == asked
        assert answer["_meta"]["from"].partition("@")[0] == "bob"
        wait_state(alpha, asked, "answered")


def test_mail_waits_while_the_hub_between_is_down_and_goes_when_it_is_back() -> None:
    with hubs("alpha", "beta", "server") as (alpha, beta, server):
        introduce(alpha, beta, server)
        server.stop()

        alpha.start()
        told = alpha.send("bob", "the door is shut", "ann")["id"]
        assert alpha.state(told) == "queued"  # nobody is there, and it waits
        server.start()
        wait_state(alpha, told, "forwarded")
        alpha.stop()
        server.restart()  # what it took is on its disk

        beta.start()
        assert take(beta, "bob")["text"] == "the door is shut"
        wait_state(server, told, "delivered")  # while it is still there to say so
        beta.stop()

        alpha.start()
        wait_state(alpha, told, "delivered")


def test_who_removes_its_own_way_is_reached_by_the_other_one_at_once() -> None:
    """The connection stays where only the other side dialled it; whom it led to does not."""
    with hubs("near", "far", "server") as (near, far, server):
        live(near, "ann")
        for hub in (near, server):
            connect(hub, "far", f"ws://127.0.0.1:{far.port}")
        connect(near, "server", f"ws://127.0.0.1:{server.port}")
        wait_knows(far, "ann")
        assert near.call("DELETE", "/v1/connections/far", admin=True).status in (200, 204)
        live(near, "bea")
        wait_knows(far, "bea")
        for agent in ("ann", "bea"):
            sent = far.send(agent, "are you there?", "zoe", intent="request")["id"]
            assert take(near, agent)["_meta"]["id"] == sent
        rows = far.get("/v1/agents", admin=True).json["agents"]
        assert {row["connection"] for row in rows if row["handle"].partition("@")[0] in ("ann", "bea")} == {
            "near-server"
        }
