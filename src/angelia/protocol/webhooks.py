"""Standard Webhooks 1.0: how a message that is posted to somebody is signed, and how one is verified.

What must stay true: what is signed is the id, the time and the body, byte for byte, with a secret of its own for each
endpoint. The same three headers stand there twice, under the names of the standard and under those of Svix, which some
receivers know alone; whoever verifies takes one set or the other, never a mixture. Comparing takes the same time
whatever is wrong. Pure: whoever calls brings the time.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence

PREFIXES = ("webhook", "svix")
TOLERANCE_SECONDS = 300  # what the standard's own libraries take; clocks differ, and an attempt may take its time
_SECRET = "whsec_"
_KEY_BYTES = range(24, 65)  # the standard's


class NotSigned(ValueError):
    """What came is not what somebody with the secret has sent just now; the text says what is wrong."""


def key_of(secret: str) -> bytes:
    """The key in a secret as people see it, ``whsec_`` and base64. Raises ``ValueError``, which does not show it."""
    try:
        key = base64.b64decode(secret.removeprefix(_SECRET), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET) or len(key) not in _KEY_BYTES:
        raise ValueError(f"a secret is {_SECRET} and the base64 of {_KEY_BYTES[0]} to {_KEY_BYTES[-1]} bytes")
    return key


def sign(secret: str, id: str, timestamp: int, body: bytes) -> str:
    """One signature, ``v1,`` and base64. Raises ``ValueError`` for a secret or an id that may not be one."""
    if not id or "." in id or not id.isascii() or not id.isprintable():
        raise ValueError(f"an id is printable ASCII without a dot: {id!r}")
    code = hmac.digest(key_of(secret), b"%s.%d.%s" % (id.encode(), timestamp, body), "sha256")
    return "v1," + base64.b64encode(code).decode()


def headers(secrets: Sequence[str], id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers of a post. ``timestamp``: seconds, of this attempt. Several secrets: while one replaces another."""
    signatures = " ".join(sign(secret, id, timestamp, body) for secret in secrets)
    parts = {"id": id, "timestamp": str(timestamp), "signature": signatures}
    return {f"{prefix}-{part}": value for prefix in PREFIXES for part, value in parts.items()}


def verify(secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float) -> str:
    """Check what came. In: headers by their lower-case names; ``now`` in seconds. Out: the id, which names a repeat.

    Raises ``NotSigned``.
    """
    for prefix in PREFIXES:
        if f"{prefix}-id" in headers:
            break
    else:
        raise NotSigned("there is no webhook-id")
    id, stamp, given = (headers.get(f"{prefix}-{part}", "") for part in ("id", "timestamp", "signature"))
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise NotSigned(f"{prefix}-timestamp is no number of seconds")
    if abs(now - int(stamp)) > TOLERANCE_SECONDS:
        raise NotSigned(f"{prefix}-timestamp is more than {TOLERANCE_SECONDS} s from now")
    try:
        right = [sign(secret, id, int(stamp), body).encode() for secret in secrets]
    except ValueError as error:
        raise NotSigned(str(error)) from None
    # Every pair is compared, so that the time does not tell which was the right one.
    found = [hmac.compare_digest(one, other.encode("utf-8", "replace")) for one in right for other in given.split(" ")]
    if not any(found):
        raise NotSigned(f"no signature in {prefix}-signature is right")
    return id
