"""Real hubs, linked, of which one is put back to a copy: all that was handed over goes again, answers too, whatever was
done to the connection meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.hub import MARGIN, Hub, eventually
from tests.acceptance.linked import connect, connection, hubs, live, take, wait_knows, wait_state, wait_up

pytestmark = pytest.mark.timeout(180)
MANY = 300  # more than one unit looks at
AGAIN_SECONDS = 20.0 * MARGIN


@pytest.fixture
def two() -> Iterator[tuple[Hub, Hub]]:
    """Not linked yet; ann lives at home, bob at the garage."""
    with hubs("home", "garage") as (here, far):
        live(here, "ann")
        live(far, "bob")
        yield here, far


def target(far: Hub) -> str:
    return f"ws://127.0.0.1:{far.port}"


def copy_of(at: Hub, folder: Path) -> str:
    file = str(folder / "copy.db")
    done = at.run("backup", file)
    assert done.returncode == 0, done.stderr
    return file


def put_back(at: Hub, file: str) -> None:
    """It is down then."""
    at.stop()
    done = at.run("restore", file)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("anew", [False, True])
def test_all_that_was_forwarded_goes_again_also_where_the_connection_is_made_anew(
    two: tuple[Hub, Hub], tmp_path: Path, anew: bool
) -> None:
    here, far = two
    connect(here, "garage", target(far))
    wait_knows(here, "bob")
    copy = copy_of(far, tmp_path)
    many = [{"to": "bob", "text": str(number), "from": "ann"} for number in range(MANY)]
    answer = here.post("/v1/messages", {"messages": many})
    assert answer.status in (200, 201), answer.body
    eventually(lambda: far.inbox("bob")["total"] == MANY, AGAIN_SECONDS, "all are there")
    eventually(lambda: connection(here, "garage")["waiting"] == 0, AGAIN_SECONDS, "and known to be")
    put_back(far, copy)
    if anew:
        made = here.call("PUT", "/v1/connections/garage", {"target": target(far)}, admin=True)
        assert made.status == 200, made.body
        assert not made.json["up"]
    far.start()
    eventually(lambda: far.inbox("bob")["total"] == MANY, AGAIN_SECONDS, "all are there again")


def test_what_was_forwarded_goes_again_to_a_hub_that_is_paired_anew(two: tuple[Hub, Hub], tmp_path: Path) -> None:
    """It was put back to before it was paired, and knows nothing of the other."""
    here, far = two
    copy = copy_of(far, tmp_path)
    (far.folder / "link.key").chmod(0o640)  # as if it were another user's
    path, given = "/v1/connections/garage", {"target": target(far)}

    def pair() -> None:
        code = far.call("POST", "/v1/pairing", {}, admin=True).json["code"]
        made = here.call("PUT", path, {**given, "code": code}, admin=True)
        assert made.status in (200, 201), made.body
        wait_up(here, "garage")

    pair()
    wait_knows(here, "bob")
    asked = here.send("bob", "are you there?", "ann", intent="request")["id"]
    wait_state(here, asked, "forwarded")
    (far.folder / "link.key").chmod(0o600)  # with another mode no hub starts
    put_back(far, copy)
    far.start()
    eventually(lambda: "angelia pair" in str(connection(here, "garage")["advice"]), AGAIN_SECONDS, "it says what to do")
    pair()
    assert take(far, "bob", AGAIN_SECONDS)["_meta"]["id"] == asked


def test_an_answer_passes_a_hub_that_was_put_back_to_before_its_question(tmp_path: Path) -> None:
    with hubs("alpha", "beta", "server") as (alpha, beta, server):
        for hub, agent in ((alpha, "ann"), (beta, "bob")):
            live(hub, agent)
            connect(hub, "server", target(server))
        wait_knows(alpha, "bob")
        copy = copy_of(server, tmp_path)
        asked = alpha.send("bob", "is the door shut?", "ann", intent="request")["id"]
        assert take(beta, "bob")["_meta"]["id"] == asked
        wait_state(alpha, asked, "forwarded", "delivered")
        alpha.stop()
        put_back(server, copy)
        server.start()
        replied = beta.kept("POST", f"/v1/messages/{asked}/reply", {"text": "it is", "from": "bob"}).json["id"]
        wait_state(beta, replied, "forwarded", seconds=AGAIN_SECONDS)
        alpha.start()
        answer = take(alpha, "ann", AGAIN_SECONDS)
        assert (answer["text"], answer["_meta"]["in_reply_to"]) == ("it is", asked)
        wait_state(alpha, asked, "answered")
        wait_state(beta, replied, "delivered", seconds=AGAIN_SECONDS)
