"""The first words on a line between two hubs, on either side: who is there, and do both know the secret.

What must stay true: nobody is told anything, and nothing is taken, before both sides have proved themselves: first the
one that dials, so that a stranger learns nothing to guess by. Refusals say what a person can do. What is proved, and
how, stands in ``hello.py``.
"""

import asyncio
import os
import shlex
import stat
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from angelia.bus.caller import Caller, Rank
from angelia.links.channel import Channel, Refused
from angelia.links.hello import CODE, FOLDER, KEY, OWNER, Greeting, Offer, nonce, read_epoch, read_hello, read_welcome
from angelia.links.port import Dialled, Kind, Trouble
from angelia.model.connection import Connection, check_connection_name
from angelia.model.errors import BadName
from angelia.protocol.gateway import Refusal
from angelia.protocol.hub import VERSION
from angelia.protocol.jsonrpc import UNKNOWN_METHOD, Request

SECONDS = 10.0  # for each of the first calls: a commit, and the work of one guess
PROVE_SECONDS = 15.0  # that a guest has to prove itself
FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Met:
    """Whom a line leads to: the hub's id, what it calls itself, the key to keep (after a code; else as before), and the
    epoch of its store."""

    hub: str
    name: str
    key: bytes | None
    epoch: str = ""


# -------------------------------------------------------------------------------------------------- the side that dials


async def say_hello(
    channel: Channel,
    me: str,
    name: str,
    connection: Connection,
    dialled: Dialled,
    code: str | None,
    check: Callable[[str], None],
    epoch: str = "",
) -> Met:
    """Greet the hub that was dialled, over a channel that runs. ``check`` raises ``Trouble`` where that hub (its id)
    may not be served under this connection. Raises ``Trouble`` or ``LineLost``.
    """
    by = _by(connection, dialled, code)
    mine = nonce()
    hello = {"version": VERSION, "hub": me, "name": name, "nonce": mine, "by": by, "epoch": epoch}
    try:
        answer = await channel.call("hub.hello", hello, SECONDS)
        hub, far_name, theirs = read_welcome(answer)
        far_epoch = read_epoch(answer)
        if hub == me:
            copied = "or its data folder is a copy of this one's: each needs its own."
            raise _refused("That is this hub itself.", f"Give the address of the other one, {copied}")
        check(hub)  # before the two agree on a new key, say
        if by == KEY and connection.hub not in (None, hub):
            raise _refused(
                f"Another hub answers there than the one that {connection.name} was paired with.",
                f"If that is right, pair anew: {_pairing(connection)}",
            )
        greeting = Greeting(me, name, hub, far_name, f"{mine}|{theirs}", by)
        key = await _key(greeting, connection, dialled, code)
        prove = {"proof": greeting.proof(key, "dialler") if key is not None else ""}
        answer = await channel.call("hub.prove", prove, SECONDS)
        proof = answer.get("proof") if isinstance(answer, dict) else None
        if key is not None and not greeting.is_proof(key, "acceptor", proof):
            raise _refused("The other side does not know our secret.", _pair_anew(connection))
    except Refused as refused:
        raise _trouble(refused, connection) from None
    except TimeoutError:
        raise Trouble(
            Kind.UNREACHABLE, f"The hub there did not answer within {SECONDS:g} s.", "Look at how it is doing."
        ) from None
    lasting = greeting.lasting_key(key) if by == CODE and key is not None else connection.key
    return Met(hub, far_name, lasting, far_epoch)


def _by(connection: Connection, dialled: Dialled, code: str | None) -> str:
    if code is not None:
        return CODE
    if dialled.by_owner:
        return OWNER
    if connection.key is not None:
        return KEY
    if dialled.key_file is not None:
        return FOLDER
    raise _refused("The two hubs do not know each other yet.", _pair_anew(connection))


async def _key(greeting: Greeting, connection: Connection, dialled: Dialled, code: str | None) -> bytes | None:
    """The secret that is proved; None where the line itself proves enough."""
    if code is not None:
        return await asyncio.to_thread(greeting.key_of, code)
    if greeting.by == FOLDER and dialled.key_file is not None:
        return _read_key(dialled.key_file)
    return connection.key if greeting.by == KEY else None


def _read_key(path: str) -> bytes:
    """The secret of a hub of this machine and this user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe never opens
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise _refused(f"{path} is no file of this user.", "Pair the two hubs with a code.")
            return os.read(descriptor, 1024).strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(f"{path} cannot be read: {error.strerror}.", "Pair the two hubs with a code.") from None


def _trouble(refused: Refused, connection: Connection) -> Trouble:
    """What the other side's refusal means for a person here."""
    reason = refused.data.get("reason")
    says = f"The other side says: {refused.message.rstrip('.')}."
    if reason == "wrong_version" or refused.code == UNKNOWN_METHOD:
        advice = "Bring both machines to the same version of Angelia."
        return Trouble(Kind.WRONG_VERSION, says, advice, lasting=True)
    if reason == "already_linked":
        return Trouble(Kind.REFUSED, "The other side's own link to this hub is up.", "Nothing needs to be done.")
    if reason == "wrong_code":
        advice = "Type the code as it stands on the other screen; angelia pair there shows a new one."
        return Trouble(Kind.REFUSED, "The code is wrong, or is no longer good.", advice, lasting=True)
    if reason == "removed":
        return _refused("That hub's owner removed the connection.", _want_again(refused.data.get("name"), connection))
    if reason == "paired_already":
        return _refused(says, "Do that there, then pair anew.")
    return _refused(says, _pair_anew(connection))


def _want_again(name: object, connection: Connection) -> str:
    """What to do where the owner over there removed the connection; ``name``: what it was called there, as told."""
    here = f"angelia disconnect {connection.name}" if not connection.fixed else "take it out of the settings"
    try:
        there = f"There: angelia connect {check_connection_name(name)}"
    except BadName:
        there = _pair_anew(connection)
    return f"{there}; or here: {here}"


def connected_already(other: Connection) -> Trouble:
    """The hub that was dialled has another connection here."""
    how = f"with 'angelia disconnect {other.name}'" if not other.fixed else "from the settings, where it stands"
    copied = "If the hub there is another one, one data folder is a copy of the other, and each hub needs its own."
    problem = f"The hub there has a connection here already, {other.name}. {copied}"
    return _refused(problem, f"Use that name, or remove it first, {how}.")


def _refused(problem: str, advice: str) -> Trouble:
    return Trouble(Kind.REFUSED, problem, advice, lasting=True)


def _pair_anew(connection: Connection) -> str:
    return f"Run 'angelia pair' there, and here: {_pairing(connection)}"


def _pairing(connection: Connection) -> str:
    """The command to type here."""
    return f"angelia pair {connection.name} {shlex.quote(connection.target or 'TARGET')}"


# --------------------------------------------------------------------------------------------- the side that is dialled


@dataclass(frozen=True, slots=True)
class House:
    """What a guest is measured by. ``key_of``: the key that is shared with a hub, by its id; ``meet``: lets a guest in
    that has proved itself, and gives the name that it has here; it may raise ``Refusal``."""

    me: str
    name: str
    folder_key: bytes
    offer: Offer
    key_of: Callable[[str], bytes | None]
    meet: Callable[[Met], Awaitable[str]]
    epoch: str = ""


class Guest:
    """One line from outside, until it has proved itself. Its requests come to ``handle``."""

    def __init__(self, house: House, caller: Caller) -> None:
        self._house, self._caller = house, caller
        self._awaited = "hub.hello"
        self._greeting: Greeting | None = None
        self._key: bytes | None = None
        self._code: str | None = None
        self._epoch = ""

    async def handle(self, request: Request) -> object:
        """Answer ``hub.hello`` and ``hub.prove``, in this order; each once, so that a line is one guess."""
        if request.method != self._awaited:
            raise Refusal(FORBIDDEN, "Say hello first, and prove who you are.", {"reason": "not_proved"})
        self._awaited = ""
        if self._greeting is not None:
            return await self._prove(request, self._greeting)
        answer = await self._hello(request)
        self._awaited = "hub.prove"
        return answer

    async def _hello(self, request: Request) -> object:
        house = self._house
        hub, name, theirs, by = read_hello(request.params)
        mine = nonce()
        greeting = Greeting(hub, name, house.me, house.name, f"{theirs}|{mine}", by)
        self._key = await self._secret(greeting)
        self._greeting = greeting
        self._epoch = read_epoch(request.params)
        return {"version": VERSION, "hub": house.me, "name": house.name, "nonce": mine, "epoch": house.epoch}

    async def _secret(self, greeting: Greeting) -> bytes | None:
        house, by = self._house, greeting.by
        if by == OWNER:
            if self._caller.rank is not Rank.ADMIN:
                raise _no("not_paired", "This line does not come from the owner of this hub.")
            return None
        if by == FOLDER:
            return house.folder_key
        if by == CODE:
            self._code = house.offer.open()
            if self._code is None:
                raise _no("wrong_code", "No code is on the screen of this hub now.")
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(house.offer.guesses, greeting.key_of, self._code)
        key = house.key_of(greeting.dialler)
        if key is None:
            raise _no("not_paired", "This hub does not know that one; its owner may have removed the connection.")
        return key

    async def _prove(self, request: Request, greeting: Greeting) -> object:
        house = self._house
        if greeting.by == CODE and self._code != house.offer.open():
            raise _no("wrong_code", "The code is no longer good.")
        if self._key is not None and not greeting.is_proof(self._key, "dialler", request.params.get("proof")):
            if greeting.by == CODE:
                house.offer.wrong()
                raise _no("wrong_code", "That is not the code.")
            raise _no("not_paired", "The secret is another one.")
        if greeting.dialler == house.me:
            raise _no("not_paired", "That is this hub itself.")
        lasting = None
        if greeting.by == CODE and self._key is not None:
            house.offer.used()
            lasting = greeting.lasting_key(self._key)
        name = await house.meet(Met(greeting.dialler, greeting.dialler_name, lasting, self._epoch))
        return {"connection": name, "proof": greeting.proof(self._key, "acceptor") if self._key is not None else ""}


def _no(reason: str, words: str) -> Refusal:
    return Refusal(FORBIDDEN, words, {"reason": reason})
