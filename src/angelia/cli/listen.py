"""``angelia listen``: receive one's mail for ever, each message once.

What must stay true: it outlives the hub, sleep and dead lines, and ends only when it is told to, when another listener
of the same name takes over, when the hub refuses it for good, or when nobody reads its output (a named pipe alone waits
for its next reader). A message is acked after it was handed over whole and noted as finished, never before.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from angelia.cli import exits, parse, say, session, tokens
from angelia.cli.hand import OutputClosed, Stopped, ToCommand, ToStdout
from angelia.cli.to_fifo import ReaderGone, ToFifo
from angelia.client.backoff import Backoff
from angelia.client.client import Client
from angelia.client.errors import NoHub, TimedOut
from angelia.client.journal import Journal
from angelia.client.listener import Listener, OnceListener, Taken
from angelia.settings import Settings

TICK_SECONDS = 0.5
WAIT_MOST_SECONDS = 5.0
Hand = ToCommand | ToStdout | ToFifo


class _Stop:
    """Whether somebody asked for an end. The second time asks the system to make one."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup has it ignored
                signal.signal(number, self._heard)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        signal.signal(number, signal.SIG_DFL)


def run(argv: list[str], settings: Settings) -> int:
    """Listen."""
    made = parse.parser(
        "listen",
        "Receive your mail as it comes, for ever. Each message is a JSON object, on a line of stdout or of a named\n"
        "pipe, or on the stdin of a command that is run for it. Where that does not end with 0 the message comes\n"
        "again, later each time.",
        'angelia listen --as scout | while read -r line; do echo "$line" | jq -r .text; done\n'
        "angelia listen --as scout --exec './answer.sh'     # there: angelia reply \"$ANGELIA_ID\" 'done'\n"
        "angelia listen --as scout --fifo ~/scout.pipe      # elsewhere: jq -r .text < ~/scout.pipe",
    )
    made.add_argument(
        "--exec", metavar="COMMAND",
        help="run this for each message: split into words as a shell does, and run without one; it finds ANGELIA_FROM, "
        "ANGELIA_ID, ANGELIA_THREAD and ANGELIA_ATTEMPT in its environment",
    )  # fmt: skip
    made.add_argument(
        "--fifo", metavar="PATH",
        help="write into this named pipe, which is made where there is none; a pipe that nobody reads waits",
    )  # fmt: skip
    made.add_argument("--once", action="store_true", help="end after one message; 1 when its command failed")
    given = parse.parse(made, argv)
    if given.exec is not None and given.fifo is not None:
        raise exits.UsageError("there is a --exec and a --fifo: give one of them")
    command = _command(given.exec) if given.exec is not None else None
    if command is None and given.fifo is None and sys.stdout is None:
        raise exits.UsageError("stdout is closed: nobody would read the mail")
    stop = _Stop()
    if given.fifo is not None:
        with ToFifo(os.path.abspath(given.fifo), lambda: stop.asked) as fifo:
            return _listen(settings, fifo, once=given.once, stop=stop)
    if command is not None:
        return _listen(settings, command, once=given.once, stop=stop)
    return _listen(settings, ToStdout(lambda: stop.asked), once=given.once, stop=stop)


def _listen(settings: Settings, hand: Hand | list[str], *, once: bool, stop: _Stop) -> int:
    way = _way(settings, lambda: stop.asked)
    if way is None:
        return exits.DONE
    name = way.name or session.OWNER

    if isinstance(hand, list):
        hand = ToCommand(hand, _variables(settings, way, name))
    # One at a time into a pipe: what lies behind it costs no attempt when its reader goes.
    window = 1 if isinstance(hand, ToFifo) else None

    def connect() -> Client:
        return Client(way.address, name=name, token=way.token)

    if isinstance(hand, ToFifo) and not hand.ready():
        say.aside(f"{hand.path} waits for a reader")
    kind = OnceListener if once else Listener
    while not isinstance(hand, ToFifo) or hand.wait():
        with kind(connect, Journal(_journal_path(settings, name)), say.aside, window=window) as listener:
            try:
                return _work(listener, hand, once=once, stopping=lambda: stop.asked)
            except ReaderGone:
                continue  # mail that is in hand here would wait for nobody
            except (OutputClosed, Stopped):
                break
    return exits.DONE


def _way(settings: Settings, stopping: Callable[[], bool]) -> session.Way | None:
    """The way to the hub, once it is known: where none runs yet, it may turn out to be another. None: told to stop."""
    backoff = Backoff(1.0, WAIT_MOST_SECONDS)
    told = False
    while not stopping():
        try:
            way = session.caller(settings)
            if not way.address.path and not settings.hub_url:
                with way.looks() as hub:
                    hub.health()
            return way
        except (NoHub, TimedOut) as error:
            if not told:
                say.aside(f"{error}; trying again")
            told = True
        ends = time.monotonic() + backoff.next_seconds()
        while time.monotonic() < ends and not stopping():
            time.sleep(TICK_SECONDS / 5)
    return None


def _work(listener: Listener, hand: Hand, *, once: bool, stopping: Callable[[], bool]) -> int:
    while not stopping():
        taken = listener.take(TICK_SECONDS) if hand.ready() else None
        if taken is None:
            if listener.ended:
                break
            if hand.given_up(listener.holding):
                raise ReaderGone
            continue
        if isinstance(hand, ToCommand) and _is_presence(taken):
            listener.finish(taken)  # news for a reader, and no work
            continue
        failure = hand(taken)
        _settle(listener, taken, failure)
        if once:
            return exits.NO if failure else exits.DONE
    if listener.error is not None:
        raise listener.error
    if listener.superseded:
        say.aside("another listener of this name has taken over")
        return exits.NO
    return exits.DONE


def _is_presence(taken: Taken) -> bool:
    """Whether it only says who came online: passing by, without a lease, or kept in the mailbox."""
    return not taken.lease or (taken.message.get("kind") == "notice" and taken.message.get("from") == "interop")


def _settle(listener: Listener, taken: Taken, failure: str) -> None:
    if failure:
        say.aside(f"{failure}; {taken.id} goes back to the hub")
        listener.give_back(taken, failure)
    else:
        listener.finish(taken)


def _command(line: str) -> list[str]:
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise exits.UsageError(f"--exec cannot be split into words: {error}") from None
    if not words:
        raise exits.UsageError("--exec is empty")
    if shutil.which(words[0]) is None:
        raise exits.UsageError(f"--exec: there is no command '{words[0]}' that could be run")
    return words


def _variables(settings: Settings, way: session.Way, name: str) -> dict[str, str]:
    """So that a plain ``angelia reply`` in the command acts as the same agent at the same hub."""
    variables = {"ANGELIA_DATA_DIR": settings.data_dir}
    if settings.hub_url or not way.address.path:
        variables["ANGELIA_URL"] = settings.hub_url or str(way.address)
    if name != session.OWNER:
        variables["ANGELIA_AGENT"] = name
    return variables


def _journal_path(settings: Settings, name: str) -> str:
    """One journal for each name at each hub. Both are checked before they become a part of a path."""
    tokens.check_name(name)
    place = "".join(sign if sign.isalnum() or sign in ".-" else "_" for sign in settings.hub_url or "")
    os.makedirs(settings.data_dir, mode=0o700, exist_ok=True)
    return os.path.join(settings.data_dir, "listen", name.lower() + (f"@{place}" if place else ""))
