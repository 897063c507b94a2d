"""Who a command acts as, and which way it goes to the hub.

What must stay true:

- ``--as NAME`` acts as NAME: with ``ANGELIA_TOKEN``, else with the data folder's token of that very name, else as an
  open name. Without it a command acts as ``human``, the hub's owner, and never falls back to some agent.
- The owner is known by the hub's Unix socket alone: no token of the owner's is ever read here or sent over TCP. Where
  a URL turns out to lead to the hub of our own data folder, that folder's socket is used.
- A token that stands in the data folder goes over that folder's socket, or to another machine that somebody named.
  Whatever answers on a port of this machine gets it never: any program may listen there, and repeat what a hub says.
- Inside a turn (``Settings.turn_of``) nobody is the owner, and nobody else than the turn's agent: it calls with its own
  token, or by TCP, never over the socket without one. That is no hard boundary: a program of the same user gets round.
- A folder that somebody named is the one that is meant: without a hub there is none. Only for the default folder is
  the usual port tried in its place, and no token is sent there.
"""

from __future__ import annotations

import json
import os
import socket as sockets
import stat

from angelia.cli import tokens
from angelia.cli.exits import Refused, UsageError
from angelia.client.calls import Calls
from angelia.client.errors import NoHub
from angelia.client.find import DEFAULT_URL, Address, BadAddress, is_socket, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

OWNER = "human"
LOOK_SECONDS = 5.0  # a hub that is well answers a look within milliseconds; one that hangs is soon told
_CONNECT_SECONDS = 1.0


class NoHubHere(NoHub):
    """No hub runs on the data folder."""

    def __init__(self, settings: Settings, *, advised: bool = True) -> None:
        """``advised``: say how to start one, too."""
        super().__init__(settings.data_dir, "no hub runs on it")
        words = f"no hub runs on {settings.data_dir}"
        self.args = (f"{words}; start one with: {command(settings, 'up')}" if advised else words,)


def command(settings: Settings, words: str) -> str:
    """``angelia`` with these words, as a hint shows it: it means this data folder, wherever it is typed."""
    if "data_dir" not in settings.origins:
        return f"angelia {words}"
    from shlex import quote  # noqa: PLC0415 - only for this sentence

    return f"angelia {words} --data-dir {quote(settings.data_dir)}"


class Way:
    """A caller and its way to a hub."""

    __slots__ = ("address", "name", "token")

    def __init__(self, address: Address, name: str | None, token: str | None) -> None:
        self.address = address
        self.name = name
        self.token = token

    def calls(self) -> Calls:
        """The hub's calls, this way."""
        return Calls(self.address, name=self.name, token=self.token)

    def looks(self) -> Calls:
        """The same, for what a hub answers at once: it is not waited for longer than a person would."""
        return Calls(self.address, name=self.name, token=self.token, answer_seconds=LOOK_SECONDS)


def caller(settings: Settings, seconds: float = LOOK_SECONDS) -> Way:
    """As whoever the settings say: the agent, or else the owner. ``seconds``: how long to look who a hub is."""
    name = settings.agent
    if settings.turn_of is not None and (name or "").lower() != settings.turn_of.lower():
        owners_only(settings)
    if name is None or name.lower() == OWNER:
        return owner(settings)
    tokens.check_name(name)
    address = _address(settings)
    if settings.token and (settings.hub_url or address.path):  # whoever set it says where it goes
        return Way(address, name, settings.token)
    token = settings.token or tokens.read(settings.data_dir, name)
    if token is None:
        return Way(_by_tcp(settings, address) if settings.turn_of and address.path else address, name, None)
    if not settings.hub_url and not address.path:
        raise NoHubHere(settings)
    return Way(_for_our_token(settings, address, name, seconds), name, token)


def anyone(settings: Settings, seconds: float = LOOK_SECONDS) -> Way:
    """For what everybody may: nobody in particular, with the agent's token where there is one."""
    if settings.turn_of is not None or (settings.agent is not None and settings.agent.lower() != OWNER):
        return caller(settings, seconds)
    return Way(_address(settings), None, None)


def owner(settings: Settings) -> Way:
    """As the hub's owner, over the socket; ``Refused`` where this data folder's hub is not the one that is meant."""
    owners_only(settings)
    address = _address(settings)
    if address.path:
        return Way(address, OWNER, None)
    try:
        socket = _our_socket_behind(settings, address, LOOK_SECONDS)
    except NoHub as error:
        if settings.hub_url:
            raise
        why = f"{error.why}; nor does {settings.data_dir} have one. Start it: {command(settings, 'up')}"
        raise NoHub(error.where, why) from None
    if socket is not None:
        return Way(Address(path=socket), OWNER, None)
    raise Refused(
        f"you are not the owner of the hub at {address}: its data folder is not {settings.data_dir}. "
        "Say who you are with --as NAME, or name the hub's folder with --data-dir"
    )


def addresses(settings: Settings) -> list[str]:
    """Every address by TCP that the hub of the data folder says it has."""
    told = _note(settings.data_dir).get("addresses")
    return [url for url in told if isinstance(url, str)] if isinstance(told, list) else []


def owners_only(settings: Settings) -> None:
    """``Refused`` inside a turn: for what is the owner's, whichever way it goes."""
    if settings.turn_of is not None:
        raise Refused(
            f"this runs inside a turn of {settings.turn_of}; the hub's owner does this from a terminal of their own"
        )


def _by_tcp(settings: Settings, socket: Address) -> Address:
    """Where whoever has no token is taken for no more than that; over the socket it would be the owner."""
    note = _note(settings.data_dir)
    told = note.get("addresses")
    ours = _socket(settings, note)
    if ours is not None and os.path.realpath(str(socket.path)) == os.path.realpath(ours) and isinstance(told, list):
        for url in told:
            if isinstance(url, str) and url.startswith("http"):
                return read(url)
    raise Refused(f"this runs inside a turn of {settings.turn_of}, which has no token for {socket}")


def _address(settings: Settings) -> Address:
    """The hub that somebody named; else the data folder's; else, where nobody named a folder, the usual port's."""
    try:
        if settings.hub_url:
            return read(settings.hub_url)
        socket = _socket(settings, _note(settings.data_dir))
        if socket is not None and _takes_calls(socket):
            return Address(path=socket)
        if socket is not None or "data_dir" in settings.origins:
            raise NoHubHere(settings)
        return read(_usual(settings))
    except BadAddress as error:
        raise UsageError(str(error)) from None


def _for_our_token(settings: Settings, address: Address, name: str, seconds: float) -> Address:
    """Where a token that stands in the data folder may go, when this is where it is to go."""
    socket = _socket(settings, _note(settings.data_dir))
    if socket is not None and address.path and os.path.realpath(address.path) == os.path.realpath(socket):
        return address
    if not _is_here(address):
        return address
    ours = _our_socket_behind(settings, address, seconds)
    if ours is not None:
        return Address(path=ours)
    if socket is None or not _takes_calls(socket):
        raise NoHubHere(settings)
    raise Refused(
        f"the hub at {address} is not that of {settings.data_dir}, whose token of {name} it does not get. Name its "
        f"folder with --data-dir, or set ANGELIA_TOKEN to the token that {name} has there"
    )


def _our_socket_behind(settings: Settings, address: Address, seconds: float) -> str | None:
    """The socket of the data folder's hub, where that hub is what answers at an address; it is asked as nobody."""
    with Calls(address, answer_seconds=seconds) as hub:
        instance = hub.health().get("instance")
    note = _note(settings.data_dir)
    socket = _socket(settings, note)
    return socket if socket is not None and instance and instance == note.get("instance") else None


def _is_here(address: Address) -> bool:
    """Whether an address leads to this machine, where anybody may listen."""
    if address.path:
        return True
    from ipaddress import ip_address  # noqa: PLC0415 - only for a hub that was named

    try:
        found = sockets.getaddrinfo(address.host, address.port, type=sockets.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True  # it cannot be called either, which is told by whoever tries
    for *_, place in found:
        here = ip_address(str(place[0]).partition("%")[0])
        here = getattr(here, "ipv4_mapped", None) or here
        if here.is_loopback or here.is_unspecified:
            return True
    return False


def _takes_calls(path: str) -> bool:
    """Whether anybody listens on a socket; one whose hub was killed stays behind."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as trial:
        trial.settimeout(_CONNECT_SECONDS)
        try:
            trial.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        except OSError:
            return True  # it is too busy to say
    return True


def _usual(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.port}" if settings.port else DEFAULT_URL


def _socket(settings: Settings, note: dict[str, Any]) -> str | None:
    """The socket of the data folder's hub, if there is one: where the hub says, else where one would stand."""
    told = note.get("socket")
    for path in (told, settings.socket_path):
        if isinstance(path, str) and is_socket(path):
            return path
    return None


def _note(data_dir: str) -> dict[str, Any]:
    """What a hub that serves the folder says of itself; it stands in the owner's own folder. Raises ``Refused`` where
    others can write there: they could name another hub, and be given tokens."""
    try:
        with open(os.path.join(data_dir, "hub.json"), encoding="utf-8") as file:
            mode = stat.S_IMODE(os.stat(data_dir).st_mode)
            note = json.load(file)
    except (OSError, ValueError):
        return {}
    if mode & 0o022:
        from shlex import quote  # noqa: PLC0415 - only for this sentence

        mend = f"chmod 700 {quote(data_dir)}"
        raise Refused(f"others can write to the data folder {data_dir} (mode {mode:o}); close it: {mend}")
    return note if isinstance(note, dict) else {}
