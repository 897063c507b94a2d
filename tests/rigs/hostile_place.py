"""Where hostile texts are tried: a hub, the texts, an agent that says back what it got, and what must not be there.

What must stay true: ``nothing_happened`` looks at what a text could have made (a file, a child, a hub that is unwell);
it fails where one is there. How a text goes in and comes out is the tests'.
"""

import json
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.hub import Hub, eventually
from tests.rigs.hostile import texts

SECONDS = 40.0  # for all of them together, on a machine that does other things too
KNOWN = {"d", "output", "hermes", ".cache"}  # what lies beside a hub's folder


class Place:
    """A hub, the texts, and the file that one of them would make."""

    def __init__(self, at: Hub, *more: str) -> None:
        """``more``: names of what a test itself puts beside the hub's folder."""
        self.at = at
        self.mark = at.base / "mark"
        self.texts = texts(str(self.mark))
        self._known = KNOWN | set(more)

    @property
    def all(self) -> list[str]:
        """The texts, in their order."""
        return list(self.texts.values())

    def strays(self) -> list[str]:
        """Files that nobody of the hub's own makes."""
        return [str(path) for path in self.at.base.iterdir() if path.name not in self._known]

    def children(self) -> list[str]:
        """Its hub's children: the command line of each."""
        return [line for line in children(self.at.pid) if "multiprocessing" not in line]

    def nothing_happened(self, *, warm: bool = False) -> None:
        """Fails where a text did something. ``warm``: an agent of the hub's may live on."""
        assert not self.mark.exists()
        assert not self.strays(), self.strays()
        assert warm or eventually(lambda: not self.children(), SECONDS)
        assert self.at.is_ready()

    def equal(self, found: Sequence[str | None]) -> None:
        """Fails unless these are all of them, each as it went in."""
        same(dict(zip(self.texts, found, strict=True)), self.texts)

    def send_all(self, box: str, **more: Any) -> list[str]:
        """All of them to one name, by batches; their ids."""
        ids: list[str] = []
        messages = [{"to": box, "text": text, "from": "sender", **more} for text in self.all]
        for start in range(0, len(messages), 50):  # a batch holds 100 at most
            answer = self.at.kept("POST", "/v1/messages", {"messages": messages[start : start + 50]})
            assert {each["status"] for each in answer.json["outcomes"]} == {201}, answer.body
            ids += [each["sent"]["id"] for each in answer.json["outcomes"]]
        return ids


@contextmanager
def quiet(at: Hub) -> Iterator[Place]:
    """A hub that runs while this lasts, and has said nothing by then that a text made it say."""
    with at:
        yield Place(at)
        said = at.output()
    assert "Traceback" not in said
    assert "\x1b" not in said


def own_box(at: Hub) -> str:
    """A name that one test alone uses."""
    name = f"b{uuid.uuid4().hex[:10]}"
    at.claim(name)
    return name


def same(found: Mapping[str, object], wanted: Mapping[str, object]) -> None:
    """Fails where one of them is another; shows those alone."""
    wrong = {name: (found.get(name), want) for name, want in wanted.items() if found.get(name) != want}
    assert not wrong, wrong  # nothing rewrites an assertion here


def children(pid: int) -> list[str]:
    """The command line of each child of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append((stat.parent / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def claimed(at: Hub, name: str, count: int) -> list[str]:
    """The texts that wait for a name, in their order; each is settled."""
    found: list[str] = []

    def more() -> bool:
        for taken in at.claim(name, 100):
            found.append(taken["message"].get("text") or json.dumps(taken["message"].get("body")))
            assert at.lease(taken["lease"]["token"], "ack").status == 200
        return len(found) >= count

    eventually(more, SECONDS, f"{count} texts")
    return found


@contextmanager
def answering(at: Hub, name: str) -> Iterator[list[str]]:
    """An agent that says back to each what it wrote, for as long as the block lasts; the texts that it got."""
    heard: list[str] = []
    over, failed = threading.Event(), list[BaseException]()

    def sit() -> None:
        try:
            while not over.is_set():
                claim = {"limit": 100, "wait_seconds": 0.5}
                for taken in at.post(f"/v1/agents/{name}/claim", claim).json["deliveries"]:
                    message = taken["message"]
                    heard.append(message["text"])
                    reply = {"from": name, "text": message["text"]}
                    answer = at.post(f"/v1/messages/{message['id']}/reply", reply)
                    assert answer.status == 201, answer.body
                    at.post(f"/v1/leases/{taken['lease']['token']}/ack", {})
        except BaseException as error:  # noqa: BLE001 - told where the block ends
            failed.append(error)

    agent = threading.Thread(target=sit)
    agent.start()
    try:
        yield heard
    finally:
        over.set()
        agent.join(SECONDS)
    assert not failed, failed
    assert not agent.is_alive()


def shown(text: str) -> str:
    """A text as a model reads it: what a terminal would obey is spelled out, and no letter else is changed."""
    spelled = []
    for place, letter in enumerate(text):
        code = ord(letter)
        plain = letter in "\t\n" or (letter == "\r" and text[place + 1 : place + 2] == "\n")
        obeyed = code < 32 or 127 <= code < 160
        spelled.append(f"\\x{code:02x}" if obeyed and not plain else letter)
    return "".join(spelled)


def adapter(at: Hub, name: str, spec: Mapping[str, Any] | None) -> None:
    """Say how an agent is woken; None: not at all."""
    answer = at.call("PUT", f"/v1/agents/{name}", {"adapter": spec}, admin=True)
    assert answer.status in (200, 201), answer.body


def find(what: Any, key: str) -> Any:
    """The value of a key, wherever it stands; None where there is none."""
    if isinstance(what, dict):
        if key in what:
            return what[key]
        return next((found for each in what.values() if (found := find(each, key)) is not None), None)
    return None
