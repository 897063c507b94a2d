"""JSON that other programs wrote: files of a Hermes home, frames of a Desktop.

What must stay true: whatever the bytes are, one value comes out or ``Malformed`` is raised, and nothing deeper than the
bound is walked. A byte order mark and half of a surrogate pair (a text that was cut between the halves of an emoji) do
not cost the whole file: the mark is dropped, the half becomes U+FFFD.
"""

import json
import re

from angelia.model.errors import BadJson
from angelia.protocol.json import encode, value

DEPTH = 32  # the hub's own bound for a body; what Hermes writes is three deep
_BOM = b"\xef\xbb\xbf"
# An escaped backslash, a whole pair, or a half: only the last is replaced.
_HALVES = re.compile(
    rb"\\(?:\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2}))"
)


class Malformed(ValueError):
    """What was read is not JSON, not UTF-8, or nested too deep. The text says which."""


def read(data: bytes, depth: int = DEPTH) -> object:
    """The value in ``data``, nested at most ``depth`` deep. Raises ``Malformed``."""
    data = data.removeprefix(_BOM)
    try:
        return value(data, depth)
    except BadJson as error:
        mended = _HALVES.sub(lambda found: b"\\ufffd" if found[1] else found[0], data)
        if mended == data:
            raise Malformed(_first_sentence(error)) from None
    try:
        return value(mended, depth)
    except BadJson as error:
        raise Malformed(_first_sentence(error)) from None


def write(content: object) -> bytes:
    """``content`` as JSON, letters as they are; with escapes where a half surrogate cannot stand as it is."""
    try:
        return encode(content)
    except UnicodeEncodeError:
        return json.dumps(content, separators=(",", ":")).encode()


def _first_sentence(error: BadJson) -> str:
    return str(error).removesuffix(" Nothing was stored.")
