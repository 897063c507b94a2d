"""``angelia up --detach``: a hub in a session of its own, without a terminal.

What must stay true: the command ends only when the hub serves, or says why it does not; the hub keeps neither the
terminal nor anything else of whoever started it, and takes the lock itself (a lock passes to no child).
"""

import os
import select
import sys
import time
from contextlib import suppress

from angelia.cli import exits, hub_log, restart, say, stdio

READY_SECONDS = 30.0
READY = b"ready\n"


def start(log_path: str, ending: str, *, as_json: bool = False) -> int:
    """Start this very command again, detached; the exit code. ``ending``: the command that ends it. ``as_json``: what
    goes wrong is told as JSON."""
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun_at = os.lseek(log, 0, os.SEEK_END)
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    line = restart.command(f"--ready-fd={writer}")
    child = os.fork()
    if child == 0:
        _become_hub(line, log, writer)
    os.close(writer)
    os.close(log)
    words = _read_until_ready(reader)
    if words is not None and words.startswith(READY):
        stdio.tell(words.removeprefix(READY).decode())
        stdio.tell(f"It runs on without this terminal. Its log: {log_path}\nIt ends with: {ending}")
        return exits.DONE
    ended, status = os.waitpid(child, os.WNOHANG if words is None else 0)
    tail = hub_log.end_of(log_path, begun_at)
    if ended == 0:
        told = f"the hub (pid {child}) was not ready within {READY_SECONDS:g} s and is still starting: {log_path}"
        code = exits.TIMED_OUT
    else:
        told = f"the hub did not start; the end of {log_path}:"
        code = os.waitstatus_to_exitcode(status) or exits.NO
    code = code if code > 0 else exits.NO
    say.fault(exits.WORDS.get(code, "failed"), f"{told}\n{tail}" if as_json else told, as_json=as_json)
    if not as_json:
        print(tail, file=sys.stderr)
    return code


def _become_hub(line: list[str], log: int, writer: int) -> None:
    """In the child: cut every tie but the one that says "ready", then run the hub. Never returns."""
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDONLY)
        for descriptor, source in ((0, nowhere), (1, log), (2, log)):
            os.dup2(source, descriptor)
        for name in os.listdir("/dev/fd"):
            if int(name) > 2 and int(name) != writer:
                with suppress(OSError):  # the listing's own is among them
                    os.close(int(name))
        os.execv(line[0], line)
    finally:
        os._exit(127)


def _read_until_ready(reader: int) -> bytes | None:
    """All that the hub says once it is ready; empty when it ended before, None when it took too long."""
    words = b""
    deadline = time.monotonic() + READY_SECONDS
    with open(reader, "rb", buffering=0) as pipe:
        while (left := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                piece = pipe.read(65536)
                if not piece:
                    return words
                words += piece
    return None


def announce(ready_fd: int, words: str) -> None:
    """In the hub: say to whoever waits that it serves."""
    with open(ready_fd, "wb", buffering=0) as pipe:
        try:
            pipe.write(READY + words.encode())
        except OSError:
            return  # whoever started it did not wait
