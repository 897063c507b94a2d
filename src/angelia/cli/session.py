"""Who a command acts as, and which way it goes to the hub.

What must stay true:

- ``--as NAME`` acts as NAME: with ``ANGELIA_TOKEN``, else with the data folder's token of that very name, else as an
  open name. Without it a command acts as ``human``, the hub's owner, and never falls back to some agent.
- The owner is known by the hub's Unix socket alone: no token of the owner's is ever read here or sent over TCP. Where
  a URL turns out to lead to the hub of our own data folder, that folder's socket is used.
"""

from __future__ import annotations

import json
import os

from angelia.cli import tokens
from angelia.cli.exits import Refused, UsageError
from angelia.client.calls import Calls
from angelia.client.errors import NoHub
from angelia.client.find import DEFAULT_URL, Address, BadAddress, choose, is_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.settings import Settings

OWNER = "human"


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


def caller(settings: Settings) -> Way:
    """As whoever the settings say: the agent, or else the owner."""
    name = settings.agent
    if name is None or name.lower() == OWNER:
        return owner(settings)
    token = settings.token or tokens.read(settings.data_dir, tokens.check_name(name))
    return Way(_address(settings), name, token)


def anyone(settings: Settings) -> Way:
    """For what everybody may: nobody in particular, with the agent's token where there is one."""
    if settings.agent is not None and settings.agent.lower() != OWNER:
        return caller(settings)
    return Way(_address(settings), None, None)


def owner(settings: Settings) -> Way:
    """As the hub's owner, over the socket; ``Refused`` where this data folder's hub is not the one that is meant."""
    address = _address(settings)
    if address.path:
        return Way(address, OWNER, None)
    try:
        with Calls(address) as hub:
            health = hub.health()
    except NoHub as error:
        if settings.hub_url:
            raise
        raise NoHub(error.where, f"{error.why}; nor does {settings.data_dir} have one. Start it: angelia up") from None
    note = _note(settings.data_dir)
    socket = _socket(settings, note)
    if socket is not None and health.get("instance") and health.get("instance") == note.get("instance"):
        return Way(Address(path=socket), OWNER, None)
    raise Refused(
        f"you are not the owner of the hub at {address}: its data folder is not {settings.data_dir}. "
        "Say who you are with --as NAME, or name the hub's folder with --data-dir"
    )


def _address(settings: Settings) -> Address:
    try:
        return choose(settings.hub_url, _socket(settings, _note(settings.data_dir)), _usual(settings))
    except BadAddress as error:
        raise UsageError(str(error)) from None


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
    """What a hub that serves the folder says of itself; it stands in the owner's own folder."""
    try:
        with open(os.path.join(data_dir, "hub.json"), encoding="utf-8") as file:
            note = json.load(file)
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
