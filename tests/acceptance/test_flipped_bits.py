"""Bits flip in the files of real hubs: whoever had sent that mail learns it, and once."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw
import pytest

from tests.acceptance.hub import Hub, eventually, hub
from tests.acceptance.linked import connect, hubs, live, wait_knows, wait_state, wait_up

pytestmark = pytest.mark.timeout(150)
ASK_SECONDS = 60


def flip(of: Hub, *texts: str) -> None:
    """Stop a hub, flip a bit in each of these texts where its file has them, and start it again."""
    of.stop()
    path = of.folder / "angelia.db"
    data = bytearray(path.read_bytes())
    for text in texts:
        data[data.index(text.encode()) + 1] ^= 2
    path.write_bytes(data)
    of.start()


def told(at: Hub, agent: str) -> list[tuple[str, str]]:
    """What the hub itself says in a mailbox: about which message, and why."""
    items = at.inbox(agent, limit=100)["deliveries"]
    return [(m["about"], m["reason"]) for item in items if (m := item["message"])["kind"] == "notice"]


def fate(receipt: dict[str, Any]) -> tuple[str, str]:
    [delivery] = receipt["deliveries"]
    return delivery["state"], delivery["reason"]


def test_whose_mail_was_damaged_is_told_in_its_mailbox_its_receipt_and_on_the_command_line() -> None:
    with hub() as at:
        live(at, "ann", "bob")
        asked = at.send("ann", "What is the answer, Ann?", "bob", intent="request")["id"]
        said = at.send("ann", "The Build is Green.", "bob")["id"]
        whole = at.send("ann", "Another question", "bob", intent="request")["id"]
        for texts in (["What is the answer, Ann?", "The Build is Green."], []):
            flip(at, *texts)
            assert told(at, "bob") == [(asked, "damaged")]
            assert fate(at.receipt(asked)) == fate(at.receipt(said)) == ("failed", "damaged")
            assert [item["message"]["id"] for item in at.inbox("ann")["deliveries"]] == [whole]
        shown = at.run("message", asked, "--as", "bob")
        assert "damaged" in shown.stdout, shown
        assert "What is" not in shown.stdout
        again = at.call("POST", "/v1/messages", {"to": "ann", "text": "What is the answer, Ann?", "from": "bob",
                                                 "intent": "request", "id": asked})  # fmt: skip
        assert (again.status, again.json["duplicate"]) == (200, True)
        looked = at.run("doctor")
        assert looked.returncode == 0, looked
        problem = "2 damaged rows: set aside, never served; hub.log names them"
        assert problem in at.get("/status").json["problems"]
        assert f"doubtful  condition: {problem}\n" in looked.stdout
        assert "angelia backup" in looked.stdout


def test_who_waits_is_told_while_the_hub_runs() -> None:
    with hub() as at:
        live(at, "ann", "bob")
        asked = at.send("ann", "What is it?", "bob", intent="request")["id"]
        db = apsw.Connection(str(at.folder / "angelia.db"))
        db.set_busy_timeout(9000)
        db.execute("UPDATE message SET text = 'What is in?'")
        db.close()
        assert at.claim("ann") == []
        assert eventually(lambda: told(at, "bob")) == [(asked, "damaged")]
        assert fate(at.receipt(asked)) == ("failed", "damaged")


def test_who_waits_in_an_ask_is_told_by_it_and_not_in_the_mailbox_too() -> None:
    """However the start of the hub and the coming back of whoever waits race with one another."""
    with hub() as at, ThreadPoolExecutor() as threads:
        live(at, "ann", "bob")
        for question in ("Is it Green now?", "Is it Blue now?"):
            asking = threads.submit(at.run, "ask", "ann", question, "--as", "bob", "--wait", str(ASK_SECONDS))
            assert eventually(lambda: at.inbox("ann")["deliveries"])
            flip(at, question)
            asked = asking.result()
            assert asked.returncode == 1, asked
            assert "Your message to ann was not answered. Bits of it flipped" in asked.stderr
            assert eventually(lambda: not at.inbox("bob")["deliveries"])


def test_who_waits_at_another_hub_is_told_at_once() -> None:
    with hubs("home", "garage") as (here, far), ThreadPoolExecutor() as threads:
        live(here, "ann")
        live(far, "bob")
        connect(here, "garage", f"ws://127.0.0.1:{far.port}")
        wait_knows(here, "bob")
        said = here.send("bob@garage", "The Build is Green.", "ann")["id"]
        question = {"from": "ann", "to": "bob@garage", "text": "Is it Green?", "id": "a" * 32,
                    "wait_seconds": ASK_SECONDS}  # fmt: skip
        waiting = threads.submit(here.call, "POST", "/v1/ask", question, seconds=2 * ASK_SECONDS)
        wait_state(here, said, "forwarded")
        wait_state(here, "a" * 32, "forwarded")
        flip(far, "The Build is Green.", "Is it Green?")
        wait_up(here, "garage")
        answer = waiting.result()
        assert answer.status == 200, answer
        assert answer.json["failure"]["reason"] == "damaged"
        assert "bob@garage was not answered" in answer.json["failure"]["text"]
        wait_state(here, said, "failed")
        assert fate(here.receipt("a" * 32)) == fate(here.receipt(said)) == ("failed", "damaged")
