"""Hostile texts to every kind of agent that a hub wakes, each way that it can: what the agent reads is what was sent,
its answer comes back as it gave it, no part of either is in an argument, and nothing happens.

A model reads a text inside a fence, where what a terminal would obey is spelled out and no other letter is changed. The
agents are stand-ins that keep what they are given, byte for byte. Texts whose beginning or end might count come alone,
the others a score to a message. A program and an endpoint of one's own are in ``test_hostile_text.py``.
"""

import asyncio
import json
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import ROOT, Hub, eventually
from tests.rigs.hostile_place import SECONDS, Place, adapter, shown
from tests.turns.stand_ins import hermes_server, openclaw_server, opencode_server

ALONE = ("-n", "--help", "@file", "/exit", "\na\n\n")
BUNDLE = 20
FENCE = re.compile(r"What others wrote stands between lines with ([0-9a-f]{16})\. ")
HEADER = "Message from \N{ROBOT FACE} sender (@sender): "
# What may differ from call to call: a session, how it is said, and a file in the hub's own folder.
VARIES = re.compile(r"[0-9a-f-]{36}|ses_1|--session-id|--resume|--session|resume")


@dataclass
class Way:
    """How an agent is told of; ``heard``: what it has read; ``answered``: what it has answered, where it was asked so
    many things. ``argv``: the arguments of each call of a program."""

    spec: dict[str, Any]
    heard: Callable[[], list[str]]
    answered: Callable[[list[str]], list[str]]
    argv: Callable[[], list[list[str]]] = list
    fenced: bool = True


Kept = Callable[[Path, list[str]], AbstractAsyncContextManager[Way]]


def mirror(folder: Path, kind: str, answers: list[str]) -> Path:
    """A program of this kind, which answers so."""
    (folder / "answers").write_text(json.dumps(answers))
    program = folder / kind
    words = [sys.executable, "-I", "-S", str(ROOT / "tests/rigs/mirror.py"), kind, str(folder)]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    program.chmod(0o700)
    return program


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def secret(folder: Path, text: str) -> str:
    path = folder / "secret"
    path.write_text(text)
    path.chmod(0o600)
    return str(path)


def by_program(kind: str, **more: Any) -> Kept:
    """The command line of an agent that has one."""

    @asynccontextmanager
    async def way(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
        program = mirror(folder, kind, answers)
        calls = folder / "calls"
        yield Way(
            {"kind": kind, "program": str(program), **more},
            lambda: [call["text"] for call in lines(calls)],
            lambda heard: answers,
            lambda: [call["argv"] for call in lines(calls)],
        )

    return way


@asynccontextmanager
async def hermes_by_its_program(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
    """Hermes takes the text as it is, behind its header, and says its answer without white space around it."""
    async with by_program("hermes", home=str(folder))(folder, answers) as way:
        way.answered, way.fenced = lambda heard: [answer.strip() for answer in answers], False
        yield way


@asynccontextmanager
async def hermes_by_its_server(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
    """As by its program."""
    with hermes_server.serving() as server:
        key = secret(folder, hermes_server.KEY)
        spec = {"kind": "hermes", "home": str(folder), "program": "/bin/true", "api_url": server.url}
        yield Way(
            {**spec, "api_key_file": key},
            lambda: [text for _, text in server.asked],
            lambda heard: [f"REPLY[{number}] {text}".strip() for number, text in enumerate(heard, 1)],
            fenced=False,
        )


@asynccontextmanager
async def openclaw_by_its_gateway(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
    async with openclaw_server.serving() as server:
        token = secret(folder, openclaw_server.TOKEN)
        yield Way(
            {"kind": "openclaw", "home": str(folder), "url": server.url, "token_file": token},
            lambda: list(server.begun),
            lambda heard: [f"REPLY {text}" for text in heard],
        )


@asynccontextmanager
async def openclaw_by_its_program(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
    """Which is how it is reached where its gateway lets in its own alone."""
    async with (
        openclaw_server.serving() as server,
        by_program("openclaw", home=str(folder), url=server.url)(folder, answers) as way,
    ):
        yield way


@asynccontextmanager
async def opencode_by_its_server(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
    with opencode_server.opencode_server() as server:
        password = secret(folder, opencode_server.PASSWORD)

        def heard() -> list[str]:
            asked = [body for method, path, body in server.asked if method == "POST" and path.endswith("/message")]
            return [body["parts"][0]["text"] for body in asked]

        yield Way(
            {"kind": "opencode", "url": server.url, "password_file": password},
            heard,
            lambda heard: [f"REPLY[{number}] " for number in range(1, len(heard) + 1)],
        )


@asynccontextmanager
async def acp_by_its_program(folder: Path, answers: list[str]) -> AsyncIterator[Way]:
    log = folder / "log"
    argv = [sys.executable, "-I", str(ROOT / "tests/turns/stand_ins/acp_agent.py")]

    def heard() -> list[str]:
        prompts = [line for line in lines(log) if line.get("method") == "session/prompt"]
        return [line["params"]["prompt"][0]["text"] for line in prompts]

    yield Way(
        {"kind": "acp", "argv": argv, "environment": {"STAND_IN_LOG": str(log)}},
        heard,
        lambda heard: [f"REPLY[{number}] " for number in range(1, len(heard) + 1)],
        lambda: [line["argv"] for line in lines(log) if "argv" in line],
    )


# By its kind and by what the hub calls the way that a turn took.
WAYS: dict[tuple[str, str], Kept] = {
    ("hermes", "command line"): hermes_by_its_program,
    ("hermes", "API server"): hermes_by_its_server,
    ("openclaw", "gateway"): openclaw_by_its_gateway,
    ("openclaw", "command line"): openclaw_by_its_program,
    ("claude_code", "command line"): by_program("claude_code"),
    ("codex", "command line"): by_program("codex"),
    ("opencode", "command line"): by_program("opencode"),
    ("opencode", "HTTP server"): opencode_by_its_server,
    ("acp", "ACP"): acp_by_its_program,
}


@pytest.fixture(scope="module")
def town() -> Iterator[Place]:
    at = Hub(env={"ANGELIA_HERMES_HOME": "off"})
    (at.base / "agents").mkdir()
    with at:
        yield Place(at, "agents")
        said = at.output()
    assert "Traceback" not in said
    assert "\x1b" not in said


def bundles(place: Place) -> list[str]:
    """All of the texts, in messages."""
    rest = [text for text in place.all if text not in ALONE]
    assert len(rest) == len(place.all) - len(ALONE)
    return [*ALONE, *("\n".join(rest[start : start + BUNDLE]) for start in range(0, len(rest), BUNDLE))]


@pytest.mark.parametrize(("kind", "route"), WAYS)
async def test_by_a_turn_of_each_kind_of_agent_and_back(town: Place, kind: str, route: str) -> None:
    at, sent = town.at, bundles(town)
    name = f"{kind}-{route}".replace(" ", "-").lower().replace("_", "-")
    folder = at.base / "agents" / name
    folder.mkdir()
    async with WAYS[kind, route](folder, sent) as way:
        await asyncio.to_thread(adapter, at, name, way.spec)
        ids = [at.send(name, text, "sender", intent="request")["id"] for text in sent]
        ends = [await asyncio.to_thread(eventually, lambda: outcome(at, id), SECONDS) for id in ids]  # noqa: B023
        heard, argv = way.heard(), way.argv()
        await asyncio.to_thread(adapter, at, name, None)
    if way.fenced:
        assert [inside(text) for text in heard] == [shown(text) for text in sent]
    else:
        assert heard == [HEADER + text for text in sent]
    assert ends == way.answered(heard)
    assert {turn["route"] for turn in turns(at, name)} == {route}
    words = {word for call in argv for word in call if not all(word in other for other in argv)}
    assert not [word for word in words if not VARIES.fullmatch(word) and not word.startswith(str(at.folder))]
    assert not [path for path in at.folder.rglob("*.txt") if path.is_file()]  # those that held a text
    await asyncio.to_thread(town.nothing_happened)


def outcome(at: Hub, id: str) -> str | None:
    """The answer; fails where there will be none."""
    receipt = at.receipt(id)
    assert "failure" not in receipt, receipt
    return receipt["reply"]["text"] if "reply" in receipt else None


def turns(at: Hub, name: str) -> list[dict[str, Any]]:
    rows = at.get("/v1/turns", admin=True).json["turns"]
    return [row for row in rows if row["agent"] == name]


def inside(prompt: str) -> str:
    """What stands between a prompt's fences, of which there is one pair."""
    found = FENCE.search(prompt)
    assert found is not None, prompt
    _, opened, rest = prompt.partition(f"\n<<< {found[1]}\n")
    text, closed, after = rest.rpartition(f"\n>>> {found[1]}\n")
    assert opened, prompt
    assert closed, prompt
    assert found[1] not in text + after
    return text
