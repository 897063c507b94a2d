"""Sockets that tell soon when the other machine is gone.

What must stay true: a cut is noticed within seconds, on both sides, without a frame of ours: the kernel asks, and what
was sent and not taken for so long ends the line. So a line that looks open and leads nowhere is dialled anew in time.
"""

import contextlib
import socket

IDLE_SECONDS = 3  # without a byte, before the kernel asks
AGAIN_SECONDS = 2  # between two questions
QUESTIONS = 3  # that may go unanswered
UNTAKEN_SECONDS = 8  # that bytes may be on their way


def make_lively(sock: socket.socket | None) -> None:
    """Set it up so; nothing for what is no TCP socket, or where the system has no such option."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_KEEPIDLE": IDLE_SECONDS,
        "TCP_KEEPALIVE": IDLE_SECONDS,  # macOS's word for it
        "TCP_KEEPINTVL": AGAIN_SECONDS,
        "TCP_KEEPCNT": QUESTIONS,
        "TCP_USER_TIMEOUT": UNTAKEN_SECONDS * 1000,
    }
    for name, value in options.items():
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
