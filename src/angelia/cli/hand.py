"""Two of the ways in which ``listen`` hands a message over: a line on stdout, or a command that is run for it.

What must stay true: a line counts as handed over when it was written whole. A command gets the message on its stdin
and in four variables, as one argument each and never through a shell; it counts when it ended with 0. A signal that
ends the listener does not reach the command, which is let end.
"""

from __future__ import annotations

import json
import os
import select
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from angelia.client.listener import Taken

TICK_MS = 500


class OutputClosed(Exception):
    """Whoever read our stdout is gone."""


class Stopped(Exception):
    """The listener was told to stop before the whole line was out."""


class ToStdout:
    """Writes one JSON object a line. ``stopping`` is asked while a slow reader lets nothing through."""

    def __init__(self, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        self._out = sys.stdout.fileno()
        self._watched = select.poll()
        kind = os.fstat(self._out).st_mode
        # A pipe tells when its reader has gone; a terminal or a file has none, and macOS refuses to watch some of them.
        self._is_pipe = stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        if self._is_pipe:
            self._watched.register(self._out, select.POLLOUT)

    def ready(self) -> bool:
        """True, or ``OutputClosed`` when nobody reads any more: no mail should be taken for nobody."""
        if self._is_pipe and any(event & (select.POLLERR | select.POLLHUP) for _, event in self._watched.poll(0)):
            raise OutputClosed
        return True

    def given_up(self, holding: bool) -> bool:
        """Never: once nobody reads, it ends."""
        return False

    def __call__(self, taken: Taken) -> str:
        """Hand over one message. Out: "", since there is nothing that could fail and leave us alive."""
        left = memoryview(line_of(taken))
        try:
            while left:
                left = left[self._some(left) :]
        except BrokenPipeError:
            raise OutputClosed from None
        return ""

    def _some(self, left: memoryview) -> int:
        if not self._is_pipe:
            return os.write(self._out, left)
        self.ready()
        if self._stopping():
            raise Stopped
        if not self._watched.poll(TICK_MS):
            return 0
        return os.write(self._out, left[: select.PIPE_BUF])  # so much never blocks


class ToCommand:
    """Runs a command for each message."""

    def __init__(self, words: list[str], variables: Mapping[str, str]) -> None:
        """In: the command and its arguments; and what of our own its calls of ``angelia`` should find again."""
        self._words = words
        self._variables = variables

    def ready(self) -> bool:
        """Always: nothing can be known before it is run."""
        return True

    def given_up(self, holding: bool) -> bool:
        """Never."""
        return False

    def __call__(self, taken: Taken) -> str:
        """Run it. Out: "" when it ended with 0, else why the message goes back."""
        message = taken.message
        own = {
            "ANGELIA_FROM": message.get("from"), "ANGELIA_ID": message.get("id"),
            "ANGELIA_THREAD": message.get("thread"), "ANGELIA_ATTEMPT": taken.attempt,
        }  # fmt: skip
        told = {name: str(value) for name, value in own.items() if value is not None and "\0" not in str(value)}
        content = json.dumps(_shown(taken), ensure_ascii=False)
        # Handed on as it is and not read: what a command finds in its environment is no setting of ours.
        environment = {**os.environ, **self._variables, **told}  # noqa: TID251
        try:
            child = subprocess.Popen(self._words, stdin=subprocess.PIPE, env=environment, process_group=0)
        except OSError as error:
            return f"{self._words[0]} cannot be run: {error.strerror}"
        with child:
            child.communicate(content.encode("utf-8", "backslashreplace"))
        if child.returncode == 0:
            return ""
        return f"{self._words[0]} ended with {child.returncode}"


def line_of(taken: Taken) -> bytes:
    """The message as one line of JSON."""
    return (json.dumps(_shown(taken), ensure_ascii=True) + "\n").encode("ascii")


def _shown(taken: Taken) -> dict[str, Any]:
    """The message, and which attempt at it this is."""
    place = {"attempt": taken.attempt, "seq": taken.seq}
    return {**taken.message, **{name: value for name, value in place.items() if value is not None}}
