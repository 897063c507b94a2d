"""A shell at a terminal, with somebody who types.

What must stay true: nothing waits for a time. Keys are typed once the shell has shown its prompt, and a shell takes
them in their order, so what a key did is what stands before the echo of a mark that is typed after it.
"""

import os
import pty
import re
import select
import signal
import time
from collections.abc import Mapping

PROMPT, MARK = "typehere>", "ZQZ"
SOON_SECONDS = 30.0


class Terminal:
    """``with Terminal(["bash", …], environment) as terminal``; ``setup`` are lines that are run first."""

    def __init__(self, command: list[str], environment: Mapping[str, str], *setup: str) -> None:
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            try:
                os.execvpe(command[0], command, {**environment, "TERM": "dumb", "PS1": PROMPT, "COLUMNS": "80"})
            finally:
                os._exit(127)
        self._until(PROMPT)
        for line in setup:
            self.run(line)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def run(self, line: str) -> None:
        """Type a line and Enter, and wait until it is done and the next one can be typed."""
        os.write(self._terminal, f"{line}\necho DO''NE\n".encode())
        self._until("DONE\n", PROMPT)

    def complete(self, typed: str) -> str:
        """The line as it stands after a Tab; it is not run."""
        os.write(self._terminal, f"{typed}\t{MARK}".encode())
        shown = self._until(MARK)
        self.run("\x15")  # takes the line back
        return shown.removesuffix(MARK).split("\n")[-1].rpartition(PROMPT)[2]

    def _until(self, *marks: str) -> str:
        """All that is shown until these stand there, one after another, and nothing behind them."""
        shown, pattern = b"", re.compile(".*".join(map(re.escape, marks)) + "$", re.DOTALL)
        ends = time.monotonic() + SOON_SECONDS
        while not pattern.search(text := _plain(shown)):
            left = ends - time.monotonic()
            assert left > 0, f"no {marks} in {text!r}"
            if select.select([self._terminal], [], [], left)[0]:
                shown += os.read(self._terminal, 65536)
        return text


def _plain(shown: bytes) -> str:
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|[\a\b\r]", "", shown.decode("utf-8", "replace"))
