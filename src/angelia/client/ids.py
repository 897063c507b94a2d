"""Ids of messages, made by the sender, so that a repeat is known as one.

What must stay true: 32 lowercase hex digits, never the same twice. The layout is UUIDv7's (RFC 9562): its first digits
rise with time, which keeps a store's index compact; nothing here or elsewhere reads a date out of one.
"""

import os
import time


def new_id() -> str:
    """A fresh id."""
    chance = int.from_bytes(os.urandom(10), "big")
    milliseconds = (time.time_ns() // 1_000_000) & (2**48 - 1)
    value = milliseconds << 80 | 0x7 << 76 | (chance >> 64 & 0xFFF) << 64 | 0b10 << 62 | chance & (2**62 - 1)
    return f"{value:032x}"
