"""What is fed with a stranger's bytes, and what must hold whatever they are: a check by the name of its corpus.

A check takes bytes and returns nothing. It fails, or lets through an error that is not a documented one, where
something is wrong. What a decoder makes of good input is the business of its twin test.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from angelia.cli.show import visible
from angelia.doors.http.arriving import Arriving
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.doors.http.routes import make_app
from angelia.model.errors import AngeliaError, BadJson, BadRequest
from angelia.model.query import read_phrases
from angelia.protocol import hub as between_hubs
from angelia.protocol import native
from angelia.protocol.bot_relay_answers import agents, envelopes, reply_text
from angelia.protocol.bot_relay_mail import BadEnvelope, read_envelope, read_reply
from angelia.protocol.bot_relay_rows import read_roster, roster_bytes
from angelia.protocol.foreign_json import Malformed, read
from angelia.protocol.json import struct, value
from angelia.protocol.jsonrpc import Request, read_frame
from angelia.protocol.prompt import answer, attribution, inert, read_attribution
from angelia.protocol.seed_bus import read_payload
from angelia.protocol.sse import EventTooLarge, Parser
from tests.fakes.small_hub import SmallHub

DEPTH = 32
FRAME_BYTES = 1024 * 1024
ME = "a" * 32


def events(data: bytes) -> None:
    """A stream means the same wherever it was cut, and no line of it gets into an id or a type."""
    whole = _parsed([data])
    cuts = sorted({len(data) // 3, len(data) // 2, max(len(data) - 1, 0)})
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert _parsed(pieces) == whole
    for found in whole or ():
        assert not set("\r\n\0") & set(found.id)
        assert not set("\r\n") & set(found.event)
        assert "\r" not in found.data


def _parsed(pieces: list[bytes]) -> list[Any] | None:
    parser, found = Parser(max_event_bytes=FRAME_BYTES), list[Any]()
    try:
        for piece in pieces:
            found += parser.feed(piece)
    except EventTooLarge:
        return None
    assert parser.retry_ms is None or 0 <= parser.retry_ms < 2**31
    return found


def frame(data: bytes) -> None:
    """A frame is a request, or has an answer that is one line of JSON with an id."""
    found = read_frame(data, max_bytes=FRAME_BYTES, depth=DEPTH)
    if isinstance(found, bytes):
        assert b"\n" not in found
        assert {"jsonrpc", "id", "error"} == set(json.loads(found))
    elif found is not None:
        assert isinstance(found, Request)
        assert found.method
        assert not isinstance(found.id, bool)
        assert isinstance(found.id, str | int | float | None)


def body(data: bytes) -> None:
    """A body under `/v1`, and one of `/broadcast`."""
    for kind in (native.SendIn, native.ClaimIn, native.BatchIn, native.AgentIn):
        with suppress(BadJson, BadRequest):
            struct(data, kind, DEPTH)
    try:
        value(data, DEPTH)
    except BadJson:
        return
    text, kept, flat = read_payload(data, DEPTH)
    assert (text is None) != (kept is None)
    assert not flat or b"_meta" not in value_keys(kept or b"{}")


def value_keys(data: bytes) -> set[bytes]:
    found = json.loads(data)
    return {key.encode("utf-8", "surrogatepass") for key in found}


def from_a_hub(data: bytes) -> None:
    """Messages, rosters, outcomes and answers of another hub: read whole, or refused alone."""
    try:
        given = read(data, DEPTH)
    except Malformed:
        return
    for each in given if isinstance(given, list) else [given]:
        for reads in (between_hubs.read_item, between_hubs.read_outcome):
            try:
                found = reads(each)
            except AngeliaError:
                continue
            assert between_hubs.plain([found])
            if isinstance(found, between_hubs.Item):
                assert isinstance(between_hubs.is_whole(found), bool)
    for row in between_hubs.read_rows(given, ME):
        assert row.hub != ME
        assert ME not in row.way
    try:
        between_hubs.read_stored(given, 1)
    except AngeliaError:
        return


def from_a_relay(data: bytes) -> None:
    """Files and answers of Hermes' relays: what is read is written so that it is read as the same."""
    try:
        found = read_envelope(data, FRAME_BYTES)
    except BadEnvelope:
        pass
    else:
        assert read_envelope(found.file()) == found
    reply = read_reply(data)
    assert reply is None or read_reply(reply.file()) == reply
    rows = read_roster(data)
    assert set(read_roster(roster_bytes(rows, 0))) == set(rows)
    try:
        given = read(data)
    except Malformed:
        return
    agents(given, "label")
    envelopes(given)
    assert isinstance(reply_text(given), str)


def terminal(data: bytes) -> None:
    """Nothing that comes out is obeyed by a terminal, or hides; and looking twice changes nothing more."""
    text = data.decode("utf-8", "surrogateescape")
    shown = visible(text)
    assert not {sign for sign in shown if sign not in "\n\t" and (ord(sign) < 32 or 127 <= ord(sign) < 160)}
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u200b\ufeff\U000e0041")
    shown.encode()
    assert visible(shown) == shown
    assert not set(visible(text, multiline=False)) & set("\n\t")


def prompt(data: bytes) -> None:
    """What a model reads is inert; a header that was written is read as the same name."""
    text = data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace") if _is_text(data) else ""
    calm = inert(text)
    assert inert(calm) == calm
    assert "\x1b" not in calm
    assert isinstance(answer(text), str)
    read_attribution(text)
    found = read_attribution(attribution(text, "ann", "rack") + text)
    assert found is not None
    assert (found.handle, found.connection, found.body) == ("ann", "rack", text)


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def query(data: bytes) -> None:
    """What stands after the `?`, as the seed's paths and those under `/v1` take it."""
    call = Call({"type": "http", "query_string": data, "headers": [], "path": "/poll"}, None, None, Arriving(0))  # type: ignore[arg-type]
    for ask in (
        lambda: call.query("agent"),
        lambda: call.number("limit", int, 5),
        lambda: call.number("wait", float, 0.0),
        lambda: call.choice("ack", ("auto", "manual")),
        lambda: call.only(("agent", "limit", "wait", "ack")),
    ):
        with suppress(BadRequest):
            ask()


def search(data: bytes) -> None:
    """What a person searches for."""
    for phrase in read_phrases(data.decode("utf-8", "surrogateescape")):
        assert phrase.text
        assert "\0" not in phrase.text
        phrase.text.encode()


PORT = 8765
HOSTS = {
    name + port for name in ("127.0.0.1", "localhost", "[::1]") for port in ("", f":{PORT}")
}  # written out once more: the gatehouse has its own


class _Door:
    """The whole door in this process, to be asked with any Host."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.app: Any = self.runner.run(self._open())

    async def _open(self) -> Any:
        hub = Hub(
            version="1", pid=1, port=PORT, since=0, data_dir="/d", durability="full", keepalive_seconds=15,
            request_bytes=FRAME_BYTES, batch_bytes=FRAME_BYTES,
        )  # fmt: skip
        return make_app((await SmallHub.open()).bus, hub)

    def status(self, *hosts: bytes) -> int:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "GET", "path": "/api/status", "query_string": b"", "client": ("127.0.0.1", 1),
            "headers": [(b"host", host) for host in hosts],
        }  # fmt: skip
        self.runner.run(self.app(scope, receive, send))
        return int(sent[0]["status"])


_door: list[_Door] = []


def host(data: bytes) -> None:
    """A Host is one of this hub's own names, letter by letter, once; everything else is refused."""
    if not _door:
        _door.append(_Door())
    own = data.decode("latin-1").lower() in HOSTS
    assert _door[0].status(data) == (200 if own else 421)
    assert _door[0].status(data, b"localhost") == 421


CHECKS: dict[str, Callable[[bytes], None]] = {
    "events": events, "frame": frame, "body": body, "from_a_hub": from_a_hub, "from_a_relay": from_a_relay,
    "terminal": terminal, "prompt": prompt, "query": query, "search": search, "host": host,
}  # fmt: skip
