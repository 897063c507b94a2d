"""disconnect between real hubs: what is removed stays so until it is wanted again, and what mail ended is said."""

import json

from tests.acceptance.hub import MARGIN, Hub, eventually
from tests.acceptance.linked import connection, hubs, live, wait_knows, wait_state, wait_up


def target(far: Hub) -> str:
    return f"ws://127.0.0.1:{far.port}"


def names(here: Hub) -> list[str]:
    return [str(row["name"]) for row in here.get("/v1/connections", admin=True).json["connections"]]


def test_what_the_side_that_is_dialled_removes_stays_removed_until_it_is_wanted_again() -> None:
    with hubs("huba", "hubb") as (a, b):
        live(b, "oracle", "secret")
        live(a, "scout", "other")
        assert a.run("connect", "hubb", target(b)).returncode == 0
        wait_up(b, "huba")
        assert b.run("connect", "huba", "--share", "oracle", "--accept", "scout").returncode == 0
        wait_up(b, "huba")
        done = b.run("disconnect", "huba")
        assert (done.returncode, done.stdout) == (0, "huba is no longer connected\n")
        eventually(lambda: connection(a, "hubb").get("kind") == "refused", 10 * MARGIN, "a is refused")
        for _ in range(2):
            shown = a.run("connections").stdout
            assert "hubb: it does not let this hub in: That hub's owner removed the connection.\n" in shown
            assert "→ There: angelia connect huba; or here: angelia disconnect hubb\n" in shown
            assert names(b) == []
            b.restart()
            assert a.run("connect", "hubb", target(b)).returncode == 1  # dialled at once
        done = b.run("connect", "huba", "--share", "oracle", "--accept", "scout")
        assert (done.returncode, done.stdout) == (0, "huba is kept; it is up whenever the other side dials\n")
        assert a.run("connect", "hubb", target(b)).returncode == 0
        wait_up(b, "huba")
        assert (connection(b, "huba")["share"], connection(b, "huba")["accept"]) == (["oracle"], ["scout"])
        wait_knows(a, "oracle")
        wait_knows(b, "scout")
        assert "secret" not in a.run("agents").stdout
        assert "other" not in b.run("agents").stdout


def test_disconnect_says_how_much_mail_ended() -> None:
    with hubs("huba", "hubb") as (a, b):
        live(b, "oracle")
        for how in ("words", "json"):
            assert a.run("connect", "hubb", target(b)).returncode == 0
            wait_knows(a, "oracle")
            b.kill9()
            eventually(lambda: not connection(a, "hubb")["up"], 10 * MARGIN, "it is down")
            sent = [str(a.send("oracle", str(n), "scout")["id"]) for n in range(2)]
            if how == "words":
                assert a.run("disconnect", "hubb").stdout == (
                    "hubb is no longer connected; 2 messages that waited for it have ended: their senders see that as "
                    "failed\n"
                )
            else:
                assert json.loads(a.run("disconnect", "hubb", "--json").stdout) == {"removed": "hubb", "ended": 2}
            for each in sent:
                wait_state(a, each, "failed")
            b.start()
