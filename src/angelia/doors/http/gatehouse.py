"""The gatehouse: what every request passes before anything of it is looked at.

What must stay true, in this order, on every path: Host is one of this hub's (421), Origin and Sec-Fetch-Site are its
own (403), the size is bounded (413), a body is not packed, and JSON under /v1 (415), and the token, if any, is a known
one (401). So no page of another site, and no name that was rebound to loopback, reaches a handler. The Unix socket is
exempt from Host and Origin, and whoever comes by it as the hub's own user is admin. A WebSocket passes by the same
rules; there an application of its own (Hermes' Desktop), whose origin is no site, is admitted with a valid token.
A wrong token is answered at a pace (``guesses.py``), and whoever is in on a token is cut off when that ends.
"""

import asyncio
import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from urllib.parse import urlsplit

from angelia.bus.caller import ADMIN, OPEN, Caller, Rank
from angelia.bus.core import Bus
from angelia.bus.directory import digest_of
from angelia.bus.events import What
from angelia.bus.visits import Visit
from angelia.doors.http.arriving import Arriving, Growing
from angelia.doors.http.call import CALLER, Call, Gone, Receive, Scope, Send
from angelia.doors.http.guesses import Guesses
from angelia.doors.http.hub import Hub
from angelia.doors.http.problem import answer_error
from angelia.doors.http.upgrade import GATEWAY, HUBS, Serve, refuse, token_of
from angelia.model.errors import (
    AngeliaError,
    ForeignOrigin,
    NotFound,
    RateLimited,
    Stopping,
    TokenRequired,
    TooLarge,
    UnsupportedType,
    WrongHost,
)

TOKENLESS = ("/health", HUBS)  # what is reached without a token even from beyond this machine
THROW_AWAY_BYTES = 32 * 1024 * 1024
THROW_AWAY_SECONDS = 2.0
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OWN_PORTS = {"http": 80, "https": 443}  # where an origin names none
_LIKE_A_TOKEN = re.compile(r"[A-Za-z0-9_=-]{40,}")  # longer than an id; the shortest token has 43 letters
GOODBYE_SECONDS = 0.25  # that a stream has for its last word, once its token has ended


class _WrongToken(TokenRequired):
    """Somebody may be guessing."""


class Gatehouse:
    """The outermost ASGI application."""

    def __init__(
        self, inner: Callable[[Call], Awaitable[None]], bus: Bus, hub: Hub, upgrades: Mapping[str, Serve]
    ) -> None:
        """``upgrades``: who serves WebSockets, by path."""
        self._inner, self._bus, self._hub, self._upgrades = inner, bus, hub, upgrades
        self._guesses = Guesses(bus.clock.monotonic)
        self._arriving = Arriving(bus.limits.arriving_bytes)
        self._hosts = _spelt([*LOOPBACK, *hub.bound, *hub.host_names], hub.port)
        self._origins = {scheme: _origins(hub, scheme) for scheme in OWN_PORTS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        if scope["type"] == "websocket":
            await self._upgrade(Call(scope, receive, send, self._arriving))
            return
        if scope["type"] != "http":
            return
        call = Call(scope, receive, send, self._arriving)
        try:
            caller = scope[CALLER] = self._admit(call, scope["headers"])
        except AngeliaError as refused:
            error = await self._paced(call, refused)
            self._note(call, error)
            await answer_error(call, error)
            await call.throw_away(THROW_AWAY_BYTES, THROW_AWAY_SECONDS)
            return
        if caller.token is None:
            await self._serve(call)
            return
        with self._visit(call, caller.token):
            await self._serve(call)

    async def _serve(self, call: Call) -> None:
        try:
            await self._inner(call)
        except Gone:
            return
        except AngeliaError as error:
            self._note(call, error)
            await answer_error(call, error)
            if isinstance(error, TooLarge):
                await call.throw_away(THROW_AWAY_BYTES, THROW_AWAY_SECONDS)
        except Exception as error:  # noqa: BLE001 - the one place that logs and hides
            await answer_error(call, error)

    async def _upgrade(self, call: Call) -> None:
        try:
            caller = self._admit_upgrade(call)
            serve = self._upgrades.get(call.scope["path"])
            if serve is None:
                raise NotFound(f"There is no WebSocket at {call.scope['path'][:200]}; the gateway is at {GATEWAY}.")
        except AngeliaError as refused:
            error = await self._paced(call, refused)
            self._note(call, error)
            await refuse(call, error)
            return
        if (
            call.scope["path"] == GATEWAY and not call.connection.by_socket
        ):  # another hub proves itself, or brings little
            call.connection.growing = Growing(self._arriving)
        with self._visit(call, caller.token):
            await serve(caller, call.connection, call.receive, call.send)

    def _admit_upgrade(self, call: Call) -> Caller:
        found: dict[bytes, bytes] = {}
        hosts: list[bytes] = []
        for name, value in call.scope["headers"]:
            if name == b"host":
                hosts.append(value)
            found[name] = found[name] + b" " + value if name in found else value
        bearer = found.get(b"authorization")
        token = token_of(call, _bearer(bearer) if bearer is not None else None)
        origin, site = found.get(b"origin"), found.get(b"sec-fetch-site")
        of_program = bool(origin) and token is not None and not _is_site(origin or b"")
        if not call.connection.by_socket:
            self._check_origin(call, hosts, None if of_program else origin, None if of_program else site)
        return self._caller(call, token)

    async def _paced(self, call: Call, error: AngeliaError) -> AngeliaError:
        """The refusal as it is answered: one of a wrong token after a while, or, of too many, that there are."""
        if not isinstance(error, _WrongToken) or call.connection.by_socket:
            return error
        peer = call.scope.get("client")
        try:
            async with self._bus.outside.wait("Nothing was done."):
                await asyncio.sleep(self._guesses.wait(peer[0] if peer else ""))
        except (RateLimited, Stopping) as other:
            return other
        return error

    def _visit(self, call: Call, token: bytes | None) -> Visit:
        """A call as one that ends with its token."""
        loop = asyncio.get_running_loop()

        def show_out() -> None:
            if call.connection.on_shown_out is not None:
                call.connection.on_shown_out()
            loop.call_later(GOODBYE_SECONDS, cut_off)

        def cut_off() -> None:
            if not visit.over:
                call.connection.abort()

        visit = Visit(self._bus.directory.visits, token, show_out)
        return visit

    def _note(self, call: Call, error: AngeliaError) -> None:
        """For whoever watches. Not the path: it may hold a lease's token; nor a token that stood in a wrong place."""
        said = _LIKE_A_TOKEN.sub("…", f"{error.code}: {error.detail}")
        self._bus.events.note(What.REFUSED, self._bus.clock.now(), call.caller.name, said)

    def _admit(self, call: Call, headers: Sequence[tuple[bytes, bytes]]) -> Caller:
        hosts: list[bytes] = []
        token: str | None = None
        kind = coding = length = b""
        origin: bytes | None = None
        site: bytes | None = None
        chunked = False
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"content-length":
                length = value
            elif name == b"transfer-encoding":
                chunked = True
            elif name == b"content-type":
                kind = value
            elif name == b"content-encoding":
                coding = value.strip().lower()
            elif name == b"origin":
                origin = value if origin is None else origin + b" " + value
            elif name == b"sec-fetch-site":
                site = value if site is None else site + b" " + value
            elif name == b"authorization":
                token = _bearer(value)
        if not call.connection.by_socket:
            self._check_origin(call, hosts, origin, site)
        path: str = call.scope["path"]
        most = self._hub.most_bytes(path)
        if length and (len(length) > 18 or int(length) > most):
            raise TooLarge(f"The request has more than {most} bytes. Nothing was stored.", limit=most)
        if chunked or length.strip(b"0"):
            if coding not in (b"", b"identity"):
                shown = coding.decode("latin-1")[:60]
                raise UnsupportedType(f"The body is packed ({shown}); send it as it is. Nothing was stored.")
            if path.startswith("/v1"):
                _check_type(kind)
        return self._caller(call, token)

    def _check_origin(self, call: Call, hosts: list[bytes], origin: bytes | None, site: bytes | None) -> None:
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            shown = b", ".join(hosts).decode("latin-1")[:100]
            raise WrongHost(f"Host is '{shown}'; this hub answers for 127.0.0.1, localhost and [::1] on its own port.")
        scheme = "https" if call.scope.get("scheme") in ("https", "wss") else "http"
        if origin is not None and origin not in self._origins[scheme]:
            raise ForeignOrigin("The Origin is another site's. Nothing was done.")
        if site is not None and site not in (b"same-origin", b"none"):
            raise ForeignOrigin("Sec-Fetch-Site says that another site is calling. Nothing was done.")

    def _caller(self, call: Call, token: str | None) -> Caller:
        if token is not None:
            digest = digest_of(token)
            if self._hub.admin_digest is not None and hmac.compare_digest(digest, self._hub.admin_digest):
                return ADMIN
            directory, now = self._bus.directory, self._bus.clock.now()
            if (name := directory.token_agent(digest, now)) is not None:
                return Caller(Rank.AGENT, name, digest)
            if (name := directory.token_desktop(digest, now)) is not None:
                return Caller(Rank.LINK, name, digest)
            raise _WrongToken("That token is not known here, or was revoked. Nothing was done.")
        if call.connection.local_admin:
            return ADMIN
        if self._hub.tokens_only and call.scope["path"] not in TOKENLESS:
            raise TokenRequired("This hub is reached from beyond its own machine: every call takes a token.")
        return OPEN


def _spelt(names: Sequence[str], port: int) -> frozenset[bytes]:
    """Names with this port, and without one."""
    bare = {name.lower().encode() for name in names}
    return frozenset(bare | {b"%b:%d" % (name, port) for name in bare})


def _origins(hub: Hub, scheme: str) -> frozenset[bytes]:
    """What an Origin may be, letter by letter, where the hub speaks this scheme itself. A page of this machine in
    another, or without a port, came from another program, unless the port is the scheme's own; one of a configured name
    came through the proxy that the name is for, which may do TLS."""
    addresses = [*LOOPBACK, *hub.bound]
    own = _spelt(addresses, hub.port)
    if hub.port != OWN_PORTS[scheme]:
        own -= {name.encode() for name in addresses}
    found = {scheme.encode() + b"://" + host for host in own}
    configured = _spelt(hub.host_names, hub.port)
    return frozenset(found | {each.encode() + b"://" + host for each in OWN_PORTS for host in configured})


def _is_site(origin: bytes) -> bool:
    """Whether an origin is that of a page, or of one that hides it."""
    scheme = urlsplit(origin.decode("latin-1").strip().lower()).scheme
    return scheme in ("http", "https") or origin.strip().lower() == b"null" or not scheme


def _bearer(value: bytes) -> str:
    scheme, _, token = value.decode("latin-1").strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _check_type(kind: bytes) -> None:
    media = kind.split(b";")[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        shown = media.decode("latin-1")[:60] or "missing"
        raise UnsupportedType(
            f"Bodies under /v1 are application/json; the content type is {shown}. Nothing was stored."
        )
