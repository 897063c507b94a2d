"""Standard input and output of a process that outlives its terminal.

What must stay true: a terminal or pipe that is gone costs the hub nothing but words, and descriptors 0 to 2 are never
free, where a database would get them and a stray line would be written into it.
"""

import os
import sys


def keep_open() -> None:
    """Put /dev/null wherever this process was started with a standard stream closed."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    # Python has nothing to print to where the streams were closed.
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115 - for as long as the process lasts
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def tell(text: str) -> None:
    """Print to stdout, if somebody is still there to read it."""
    try:
        print(text, flush=True)
    except OSError:
        divert(os.devnull, 1)


def divert(path: str, *descriptors: int) -> None:
    """Let what is written to ``descriptors`` go to the end of a file from now on."""
    target = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in descriptors:
        os.dup2(target, descriptor)
    if target not in descriptors:
        os.close(target)


def leave_terminal(log_path: str) -> None:
    """The terminal is going: read from nowhere, and write to the log."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    divert(log_path, 1, 2)


def settle() -> None:
    """Before the end: what Python still holds for stdout must not turn into an error of its own."""
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            divert(os.devnull, descriptor)
