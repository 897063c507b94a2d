"""Open a line to where a connection leads: over the network, through ssh, or to a command.

What must stay true:

- It ends within ``DialTools.seconds``, with a line or a ``Trouble`` that says why there is none; and what was opened
  on the way there is closed again.
- A line is handed out after its first frame, ``gateway.ready``, which says who is there. Nothing is taken for what it
  does not say it is.
- No secret is part of a command line, a program's environment, a log or an error. What a target holds is data: no
  shell reads it here.

What is said over a line does not belong here.
"""

import asyncio
import os
import shlex
import shutil
import ssl
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.exceptions import InvalidHandshake, InvalidStatus

from angelia.bus.surroundings import without
from angelia.links import troubles
from angelia.links.place import NoAnswer, Place
from angelia.links.port import FRAME_BYTES, Dialled, LineLost, Trouble, Wire
from angelia.links.process import Ended, ProcessWire
from angelia.links.sign_in import Pass, sign_in
from angelia.links.websocket import Closed, connect
from angelia.model.connection import Connection, Speaks
from angelia.protocol import foreign_json
from angelia.protocol.connections import check_target

OPEN_SECONDS = 15.0  # Hermes' clients wait as long for ``gateway.ready``
HUB_PORT, HERMES_PORT = 18900, 9119
_CLOSED_ON_US = (4401, 4403)  # what Hermes closes with: who are you; you may not
_NOTE_BYTES = 65536  # of hub.json, which has some hundred
_COMMAND = "angelia gateway --stdio"
# No question that nobody is there to answer, no window, no forwarding; a machine that has gone is noticed.
_SSH = (
    "-T", "-a", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15",
    "-o", "ServerAliveCountMax=3", "-o", "RemoteCommand=none",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DialTools:
    """What dialling needs of the hub. ``environment``: the hub's own, for secrets that stand there; ``surroundings``:
    what programs see of it, asked whenever one is started; ``data_dir``: its folder."""

    environment: Mapping[str, str]
    surroundings: Callable[[], Mapping[str, str]]
    data_dir: str
    seconds: float = OPEN_SECONDS
    frame_bytes: int = FRAME_BYTES


async def dial(connection: Connection, tools: DialTools) -> Dialled:
    """Open a line. Raises ``Trouble``."""
    try:
        target = check_target(connection.target)
    except ValueError as error:
        raise troubles.unknown(f"The target of {connection.name} {error}.", "Write it anew.") from None
    scheme, _, rest = target.partition(":")
    if scheme == "exec":
        return await _command(connection, shlex.split(rest), tools)
    if scheme == "docker":
        argv = ["docker", "exec", "-i", rest.removeprefix("//"), *shlex.split(_COMMAND)]
        return await _command(connection, argv, tools)
    if scheme == "ssh":
        return await _ssh(connection, target, tools)
    if scheme in ("ws", "wss"):
        return await _network(connection, target, tools)
    raise troubles.unknown(f"{connection.name} has no target: only the other side dials.", "Dial from there.")


# ------------------------------------------------------------------------------------------------------------ programs


async def _command(connection: Connection, argv: list[str], tools: DialTools) -> Dialled:
    """A command that speaks on its standard input and output. Whoever may start it there is its owner."""
    where = f"'{os.path.basename(argv[0])}'" if argv[0] != "ssh" else f"ssh to {connection.name}"
    around = _surroundings(connection, tools)
    argv = [_program(argv[0], around), *argv[1:]]
    try:
        wire = await ProcessWire.start(argv, around, max_bytes=tools.frame_bytes)
    except OSError as error:
        raise troubles.of_network(error, where) from None
    async with _closed_unless_well(wire):
        try:
            async with asyncio.timeout(tools.seconds):
                ready = await _ready(wire, where)
        except TimeoutError:
            raise troubles.silent(where, tools.seconds, wire.child.words()) from None
        except Ended as ended:
            raise troubles.of_end(ended, where) from None
        except LineLost as lost:
            raise troubles.unknown(f"At {where}, {lost}.") from None
        speaks = _speaks(ready, connection.speaks, where)
        return Dialled(wire, speaks, by_owner=True, ready=ready)


def _surroundings(connection: Connection, tools: DialTools) -> dict[str, str]:
    """What a program that is started now gets; not this connection's own secrets, though it may not be kept yet."""
    return without(connection.secret_variables, tools.surroundings())


def _program(name: str, environment: Mapping[str, str]) -> str:
    """Where a program is. Raises ``Trouble`` where it is not there."""
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is None or not os.path.isabs(found):
        raise troubles.no_program(name)
    return found


async def _ssh(connection: Connection, target: str, tools: DialTools) -> Dialled:
    """The gateway of a machine that ssh leads to; or a port there, through it."""
    url = urlsplit(target)
    who, _, host = url.netloc.rpartition("@")  # of the address as it is written: ssh knows hosts by their capitals
    host = host.removesuffix(f":{url.port}").strip("[]")
    argv = ["ssh", *_SSH, *(["-p", str(url.port)] if url.port else []), *(["-l", who] if who else [])]
    forward = parse_qs(url.query).get("forward")
    if forward is None:
        far = connection.command or _COMMAND
        return await _command(connection, [*argv, "-o", "ClearAllForwardings=yes", "--", host, far], tools)
    port = int(forward[0])
    around = partial(_surroundings, connection, tools)
    tunnel = (_program("ssh", around()), *argv[1:], "-W", f"127.0.0.1:{port}", "--", host)
    place = Place("127.0.0.1", port, tunnel=tunnel, environment=around)
    return await _server(connection, place, tools)


# ------------------------------------------------------------------------------------------------------------- network


async def _network(connection: Connection, target: str, tools: DialTools) -> Dialled:
    """A server that is reached by TCP, in the clear or by TLS."""
    url = urlsplit(target)
    default = 443 if url.scheme == "wss" else HERMES_PORT if connection.speaks is Speaks.HERMES else HUB_PORT
    prefix = url.path.rstrip("/").removesuffix("/api/hub").removesuffix("/api/ws")
    tls = None
    if url.scheme == "wss":
        tls = await asyncio.to_thread(_trust, connection.ca_file)  # the system's authorities take some time to read
    return await _server(connection, Place(url.hostname or "", url.port or default, prefix, tls), tools)


def _trust(ca_file: str | None) -> ssl.SSLContext:
    """Whose certificates to trust: the system's authorities, and one more."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # among them what is no certificate
            problem = f"{ca_file} cannot be read as a certificate: {error.strerror or 'it holds none'}."
            raise troubles.refused(problem, "Name the certificate of the authority, as PEM: --ca.") from None
    return context


async def _server(connection: Connection, place: Place, tools: DialTools) -> Dialled:
    """Whoever serves there, found out as far as it was not said."""
    try:
        async with asyncio.timeout(tools.seconds):
            about = {} if connection.speaks is Speaks.HERMES else await _hub_at(place)
            if about:
                wire, ready = await _open(place, "/api/hub", Pass(), tools)
            elif connection.speaks is Speaks.HUB:
                raise troubles.unknown(f"What answers at {place.name} is no hub of Angelia's.")
            else:
                let_in = await sign_in(place, connection, tools.environment)
                wire, ready = await _open(place, f"/api/ws{let_in.query}", let_in, tools)
    except TimeoutError as error:
        if error.errno is not None:  # the system's own, which was sooner
            raise troubles.of_network(error, place.name) from None
        raise troubles.silent(place.name, tools.seconds) from None
    except Ended as ended:
        raise troubles.of_end(ended, f"ssh to {connection.name}") from None
    except NoAnswer as error:
        if error.is_foreign:
            raise troubles.unknown(f"At {place.name}, {error}.") from None
        raise troubles.of_network(error, place.name) from None
    except (OSError, UnicodeError, InvalidHandshake) as error:
        raise troubles.of_network(error, place.name) from None
    async with _closed_unless_well(wire):
        speaks = _speaks(ready, Speaks.HUB if about else Speaks.HERMES, place.name)
        return Dialled(wire, speaks, key_file=_key_file(place, about), ready=ready)


async def _hub_at(place: Place) -> dict[str, object]:
    """What a hub says of itself; nothing where there is none."""
    answer = await place.ask("GET", "/health")
    return answer.json if answer.json.get("product") == "angelia" else {}


def _key_file(place: Place, about: Mapping[str, object]) -> str | None:
    """The key of a hub of this machine and user: only they can read it. Its folder is what the other side says; that
    it is the hub of that folder who listens there, and nobody in between, is what the folder itself says."""
    folder = about.get("data_dir")
    if not place.is_here or not isinstance(folder, str) or not os.path.isabs(folder):
        return None
    path, note = os.path.join(folder, "link.key"), os.path.join(folder, "hub.json")
    try:
        if not (_is_private(path) and _is_private(note)):
            return None
        with open(note, "rb") as file:
            said = foreign_json.read(file.read(_NOTE_BYTES))
    except (OSError, ValueError):
        return None
    return path if isinstance(said, dict) and said.get("port") == place.port else None


def _is_private(path: str) -> bool:
    found = os.lstat(path)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


async def _open(place: Place, path: str, let_in: Pass, tools: DialTools) -> tuple[Wire, dict[str, object]]:
    """The WebSocket there, and what it said first."""
    try:
        if place.tunnel:
            async with place.tunnelled(keep=True) as tunnel:
                line: Wire = await connect(place.uri(path), max_bytes=tools.frame_bytes, tunnel=tunnel)
        else:
            line = await connect(place.uri(path), max_bytes=tools.frame_bytes, tls=place.tls)
    except InvalidStatus as error:
        raise _of_status(error.response.status_code, place, let_in) from None
    async with _closed_unless_well(line):
        try:
            return line, await _ready(line, place.name)
        except Closed as closed:
            if closed.code in _CLOSED_ON_US:
                raise _of_status(closed.code - 4000, place, let_in) from None
            raise troubles.of_network(closed, place.name) from None


def _of_status(status: int, place: Place, let_in: Pass) -> Trouble:
    found = troubles.of_status(status, place.name, signed_in=bool(let_in.query))
    if let_in.is_ticket and found.lasting:  # it was used, or too old; the next dial has a new one
        found.lasting = False
    return found


# --------------------------------------------------------------------------------------------------- who is there


async def _ready(wire: Wire, where: str) -> dict[str, object]:
    """The payload of the first frame. Raises ``Trouble`` where that is something else, and what ``receive`` raises."""
    frame = await wire.receive()
    found: Any = None
    with suppress(foreign_json.Malformed):
        found = foreign_json.read(frame)
    match found:
        case {"method": "event", "params": {"type": "gateway.ready", "payload": dict(payload)}}:
            return payload
    text = troubles.said(frame[:1000].decode("utf-8", "replace"))
    advice = "Nothing may be printed before the gateway speaks: look at what its shell reads when it starts."
    raise troubles.unknown(f"{where} began with '{text}', as no gateway does.", advice)


def _speaks(ready: Mapping[str, object], wanted: Speaks, where: str) -> Speaks:
    """Who is there. Raises ``Trouble`` where that is nobody we know, or not who was wanted."""
    product = ready.get("product")
    if product not in ("angelia", None):
        raise troubles.unknown(f"{where} is a gateway of '{troubles.said(str(product))}', which is not known here.")
    found = Speaks.HERMES if product is None else Speaks.HUB
    if wanted not in (Speaks.AUTO, found):
        names = {Speaks.HUB: "a hub of Angelia's", Speaks.HERMES: "a gateway of Hermes'"}
        raise troubles.unknown(f"{where} is {names[found]}, not {names[wanted]}.", "Leave out what it speaks.")
    return found


@asynccontextmanager
async def _closed_unless_well(wire: Wire) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        await wire.close()
        raise
