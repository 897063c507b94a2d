"""Composition: settings → store → bus → hands and doors; start and stop.

What must stay true:

- Everything is wired here, and nowhere else; parts are handed plain values.
- Ready means: sockets bound, store opened and checked, doors open. The end comes in one order: nobody new, streams say
  goodbye, connections end, the store commits what it has.
- A commit that failed, or a lock that is gone, ends the serving at once; what then happens is for the caller.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from angelia import __version__
from angelia.bus.beat import BEAT_SECONDS, to_beat
from angelia.bus.core import Bus, close_bus, open_bus
from angelia.bus.directory import digest_of
from angelia.bus.glance import Disk
from angelia.bus.losses import settle_losses
from angelia.bus.surroundings import secret_variables, surroundings, variables_for_secrets, without
from angelia.bus.system import SystemClock, SystemIds
from angelia.bus.timekeeper import keep_time
from angelia.connections import connections_of
from angelia.doors.gateway.server import Gateway
from angelia.doors.hermes_home.door import HermesHome
from angelia.doors.hermes_home.files import RelayFiles
from angelia.doors.http.hub import Hub
from angelia.doors.http.listen import EVERY_ADDRESS, authority
from angelia.doors.http.protocol import Patience
from angelia.doors.http.routes import make_app
from angelia.doors.http.server import HubServer
from angelia.doors.http.upgrade import GATEWAY, HUBS
from angelia.doors.http.websocket import HubWebSocket
from angelia.ending import End, Ending
from angelia.links.dial import DialTools, dial
from angelia.links.keeper import Keeper
from angelia.links.port import Dialled
from angelia.model.connection import Connection
from angelia.model.errors import AngeliaError, DiskFull
from angelia.model.limits import Limits
from angelia.protocol.bot_relay import ENVELOPE_TTL_SECONDS, Times, relay_root
from angelia.settings import Settings, SettingsError, environment
from angelia.storage.folder import TURNS, private, secret
from angelia.storage.lock import FolderLock
from angelia.storage.sqlite.full import MIB, Reserve
from angelia.storage.sqlite.store import SqliteStore
from angelia.turns.adapters.desk import Desk
from angelia.turns.adapters.port import Tools
from angelia.turns.attempt import Attempts
from angelia.turns.processes import ChildProcesses
from angelia.turns.remains import Remains
from angelia.turns.runner import Runner
from angelia.turns.telling import Telling

log = logging.getLogger("angelia.hub")
HURRY_SECONDS = 1.0  # that programs have to end when the hub stops, which has 3 s itself
AGAIN_SECONDS = 5.0  # before something that failed is begun anew
# For everything but connections: the store's files, turns, the log.
FILES_KEPT = 256
# A store that does not close in this time hangs; what it has accepted is on disk.
CLOSE_SECONDS = 10.0


async def serve(
    settings: Settings,
    lock: FolderLock,
    tcp: Sequence[socket.socket],
    unix: socket.socket,
    announce: Callable[[list[str]], None],
    hang_up: Callable[[], None],
    files: int,
    ending: Ending,
) -> None:
    """Serve on sockets that listen already, until the end; its reason is the last that ``ending`` has.

    ``announce`` is told the addresses once the hub is ready; ``files`` is how many this process may have open.
    """
    limits = limits_of(settings)
    ending.hear_signals(hang_up)
    clock = SystemClock()
    store = await SqliteStore.open(
        Path(settings.data_dir, "angelia.db"),
        now=clock.now(),
        returned_grace_seconds=limits.returned_grace_seconds,
        durability="normal" if settings.durability == "normal" else "full",
        on_failure=lambda: ending.call(End.STORE_FAILED),
        on_gone=lambda: ending.call(End.STORE_GONE),
    )
    try:
        bus = await open_bus(store, clock, SystemIds(), limits, settings.hub_name)
        store.on_loss = partial(settle_losses, bus)
        settle_losses(bus)  # what was set aside when the store was opened, and before
        port = tcp[0].getsockname()[1]
        hub = _hub(settings, limits, port, bus, lambda: ending.call(End.ASKED), lambda: _disk(settings, store))
        fixed = connections_of(settings)
        withheld = partial(secret_variables, bus, fixed)
        children, tools, places = _programs(settings, withheld)
        hub.adapters = Desk(tools)
        hub.links = keeper = _keeper(settings, bus, fixed, withheld)
        server = _server(settings, bus, hub, keeper, tcp, unix, files)
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(keep_time(bus, settings.keepalive_seconds)),
                tasks.create_task(_watch_lock(lock, store, ending)),
            ]
            await server.start()
            urls = _urls(settings, tcp)
            hub.url = urls[0]
            lock.publish(port=port, instance=store.instance, addresses=urls, tokens_only=hub.tokens_only, ready=True)
            log.info("the hub serves on %s, data folder %s", " and ".join(urls), settings.data_dir)
            announce(urls)
            telling = Telling(bus=bus, url=hub.url, tokens=os.path.join(settings.data_dir, "tokens"))
            hands = _begin_hands(tasks, settings, bus, keeper, partial(_run_turns, bus, tools, telling, places))
            log.info("the hub is stopping: %s", _WORDS[await ending.wait()])
            children.grace_seconds = HURRY_SECONDS
            await _stop(bus, server, settings.stop_seconds, hands)
            for task in beside:
                task.cancel()
    finally:
        await _close(store)
    log.info("the hub has stopped")


def _urls(settings: Settings, tcp: Sequence[socket.socket]) -> list[str]:
    """Where the hub is found on this machine, by what it answers for: with TLS under the first name that it is given,
    which its certificate holds; else by the addresses, and by loopback's where it listens on every one."""
    bound = [each.getsockname()[:2] for each in tcp]
    if settings.tls_certificate is not None:
        names = settings.allowed_hosts[:1] or [host for host, _ in bound]
        return [f"https://{authority(host, bound[0][1])}" for host in names]
    return list(dict.fromkeys(f"http://{authority(EVERY_ADDRESS.get(host, host), port)}" for host, port in bound))


def _begin_hands(
    tasks: asyncio.TaskGroup,
    settings: Settings,
    bus: Bus,
    keeper: Keeper,
    run_turns: Callable[[], Awaitable[None]],
) -> list[asyncio.Task[None]]:
    """What goes out to agents, hubs and homes by itself."""
    hands: dict[str, Callable[[], Awaitable[None]]] = {
        "turns": run_turns,
        "the door for Hermes": lambda: _serve_hermes(settings, bus),
        "links": keeper.run,
    }
    return [tasks.create_task(_keep_up(name, run)) for name, run in hands.items()]


_WORDS = {
    End.ASKED: "it was asked to",
    End.STORE_FAILED: "a commit failed, so it replaces itself and looks anew at what is on disk",
    End.LOCK_LOST: "the data folder is no longer ours: its lock file was removed or replaced",
    End.STORE_GONE: "the store's file was removed or replaced",
}


async def _stop(bus: Bus, server: HubServer, seconds: float, hands: Sequence[asyncio.Task[None]]) -> None:
    for hand in hands:
        hand.cancel()
    server.close_listeners()
    await close_bus(bus)
    await server.stop(seconds)


async def _close(store: SqliteStore) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await store.close()
    except TimeoutError:
        log.error("the store did not close within %g s; what it has said is stored is on disk", CLOSE_SECONDS)


async def _watch_lock(lock: FolderLock, store: SqliteStore, ending: Ending) -> None:
    """A hub without its lock would be one of two. Its note, where the disk was full, is written once there is room."""
    while lock.holds() and store.is_at_its_place():
        lock.catch_up()
        await asyncio.sleep(to_beat(asyncio.get_running_loop().time(), BEAT_SECONDS))
    ending.call(End.LOCK_LOST if store.is_at_its_place() else End.STORE_GONE)


def limits_of(settings: Settings) -> Limits:
    """The limits, with those that are set; ``SettingsError`` for a name that no limit has."""
    kinds = {field.name: type(field.default) for field in fields(Limits)}
    for name, value in settings.limits.items():
        where = settings.where(f"limits.{name}")
        if name not in kinds:
            raise SettingsError(where, f"no limit is called {name}", ", ".join(sorted(kinds)))
        if kinds[name] is int and not isinstance(value, int):
            raise SettingsError(where, f"{value!r} is no whole number", "a whole number above 0")
    return replace(Limits(), **settings.limits)  # type: ignore[arg-type]  # checked just above


def no_room(data_dir: str, error: BaseException) -> str | None:
    """In words, where the disk was too full for a start; None where the error is another."""
    if not isinstance(error, DiskFull) and getattr(error, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
        return None
    found = os.statvfs(data_dir)
    free = found.f_bavail * found.f_frsize
    return (
        f"{data_dir} has {free // MIB} MiB free; a hub needs {Reserve().start_bytes // MIB} MiB to start. "
        "It has ended: make room, then start it again"
    )


def _disk(settings: Settings, store: SqliteStore) -> Disk:
    """How the disk stands; a look at numbers, which waits for no disk."""
    found = os.statvfs(settings.data_dir)
    return Disk(found.f_bavail * found.f_frsize, store.log_bytes, store.refusing)


def _hub(
    settings: Settings,
    limits: Limits,
    port: int,
    bus: Bus,
    stop: Callable[[], None],
    disk: Callable[[], Disk],
) -> Hub:
    return Hub(
        version=__version__,
        pid=os.getpid(),
        port=port,
        since=bus.clock.now(),
        data_dir=settings.data_dir,
        durability=settings.durability,
        keepalive_seconds=settings.keepalive_seconds,
        request_bytes=limits.request_bytes,
        batch_bytes=limits.batch_bytes,
        host_names=settings.allowed_hosts,
        bound=tuple(_bracketed(host) for host in settings.hosts if host not in EVERY_ADDRESS),
        admin_digest=digest_of(secret(os.path.join(settings.data_dir, "admin.token"))),
        # Through a proxy anybody may come, though it calls from loopback.
        tokens_only=bool(settings.beyond_loopback) or settings.behind_proxy,
        stop=stop,
        disk=disk,
    )


def _bracketed(host: str) -> str:
    """An address as it stands in a Host header."""
    return f"[{host}]" if ":" in host else host


def _programs(
    settings: Settings, withheld: Callable[[], frozenset[str]]
) -> tuple[ChildProcesses, Tools, tuple[str, str]]:
    """What runs programs, what adapters are given, and the folders of the notes of what runs and of turn locks."""
    running, kept, locks = (_of_turns(settings, name) for name in ("running", "private", "locks"))
    children, around = ChildProcesses(running, withheld=withheld), _surroundings(settings)
    tools = Tools(
        children=children,
        environment=around,
        variables=variables_for_secrets(environment()),
        home=around["HOME"],
        private=kept,
    )
    return children, tools, (running, locks)


def _surroundings(settings: Settings) -> dict[str, str]:
    """What programs see of the hub's environment, secrets that it needs itself still among it."""
    return surroundings(environment(), settings.pass_environment, os.path.dirname(sys.executable))


async def _keep_up(what: str, run: Callable[[], Awaitable[None]]) -> None:
    """A fault in one hand or door is told, costs the others nothing, and is not for ever."""
    while True:
        try:
            await run()
            return
        except* AngeliaError:
            log.error("%s failed with the store, which says why; begun anew in %g s", what, AGAIN_SECONDS)
        except* Exception:
            log.exception("%s failed; begun anew in %g s", what, AGAIN_SECONDS)
        await asyncio.sleep(AGAIN_SECONDS)


async def _run_turns(bus: Bus, tools: Tools, telling: Telling, places: tuple[str, str]) -> None:
    """End what a killed hub left running, then run turns until the end. ``places``: the folders of the notes of what
    runs, and of turn locks."""
    running, locks = places
    for key in await Remains(running).end_remains():
        log.info("the turn %s, which the hub before was in the middle of, was ended", key)
    await Runner(bus, tools, Attempts(bus, telling), locks).run()


def _keeper(
    settings: Settings, bus: Bus, fixed: Sequence[Connection], withheld: Callable[[], frozenset[str]]
) -> Keeper:
    """Who keeps the connections to other hubs and to gateways of Hermes'."""
    around = _surroundings(settings)
    tools = DialTools(environment(), lambda: without(withheld(), around), settings.data_dir)
    key = secret(os.path.join(settings.data_dir, "link.key")).encode()

    async def open_line(connection: Connection) -> Dialled:
        return await dial(connection, tools)

    return Keeper(bus, open_line, key, fixed, settings.hermes_connection)


def _of_turns(settings: Settings, name: str) -> str:
    """A private folder of what turns need; ``UnfitFolder`` where others could look into it."""
    turns = os.path.join(settings.data_dir, TURNS)
    private(turns)
    place = os.path.join(turns, name)
    private(place)
    return place


async def _serve_hermes(settings: Settings, bus: Bus) -> None:
    """Serve the Hermes install of this machine, unless that is switched off."""
    if (home := settings.hermes_home) is None:
        return
    limits = bus.limits
    times = Times(limits.turn_seconds, limits.turn_attempts, limits.lock_wait_seconds)
    files = RelayFiles(relay_root(home, home), settings.hermes_connection)
    await HermesHome(bus, files, times, ENVELOPE_TTL_SECONDS).run()


def _server(
    settings: Settings,
    bus: Bus,
    hub: Hub,
    keeper: Keeper,
    tcp: Sequence[socket.socket],
    unix: socket.socket,
    files: int,
) -> HubServer:
    """The server of the two doors that are reached by sockets."""
    gateway = Gateway(bus, __version__, keeper)
    return HubServer(
        make_app(bus, hub, {GATEWAY: gateway.serve, HUBS: gateway.serve_hub}),
        tcp,
        [unix],
        patience=Patience(),
        # Where few files may be open, so many connections that the owner still gets in.
        most_connections=max(files - FILES_KEPT, files // 4),
        tls=_tls(settings),
        websockets=HubWebSocket,
        frame_bytes=bus.limits.frame_bytes,
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    if settings.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(settings.where("tls_certificate"), f"cannot be used: {error}", "a PEM file") from None
    return context
