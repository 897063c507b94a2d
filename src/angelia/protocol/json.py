"""JSON in and out, with the bounds of what this hub carries.

What must stay true: a body is kept as compact JSON that means what the sender wrote; what is too deep, out of range or
not UTF-8 is refused with a reason, and nothing deeper than the bound is ever walked.
"""

import re
from typing import Any, TypeVar

import msgspec

from angelia.model.errors import BadJson, BadRequest

T = TypeVar("T")

encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
# A whole escape: of half a pair (the first half's pair may follow it), or any other.
_ESCAPE = re.compile(rb"\\(?:u([dD][89abAB]..)(\\u[dD][c-fC-F]..)?|u([dD][c-fC-F]..)|.)", re.DOTALL)


def value(data: bytes, depth: int) -> object:
    """Any JSON value nested at most ``depth`` deep; ``BadJson`` else."""
    try:
        found = _decode(data)
    except RecursionError:
        raise BadJson(f"The JSON is nested deeper than {depth}. Nothing was stored.", limit=depth) from None
    except msgspec.MsgspecError as error:
        raise BadJson(f"The body is not JSON: {_why(data, error)}. Nothing was stored.") from None
    level: list[object] = [found]
    for _ in range(depth):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return found
    if any(isinstance(child, dict | list) for child in level):
        raise BadJson(f"The JSON is nested deeper than {depth}. Nothing was stored.", limit=depth)
    return found


def compact(data: bytes, depth: int) -> bytes:
    """The same value without white space."""
    return encode(value(data, depth))


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}  # making one takes longer than a small message


def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return _decoders.get(kind) or _decoders.setdefault(kind, msgspec.json.Decoder(kind))


def struct(data: bytes, kind: type[T], depth: int) -> T:
    """A request of this shape. ``BadJson`` where it is no JSON, ``BadRequest`` where the shape is another."""
    try:
        return _decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{error}. Nothing was stored.") from None
    except RecursionError:
        raise BadJson(f"The JSON is nested deeper than {depth}. Nothing was stored.", limit=depth) from None
    except msgspec.MsgspecError as error:
        raise BadJson(f"The body is not JSON: {_why(data, error)}. Nothing was stored.") from None


def _why(data: bytes, error: msgspec.MsgspecError) -> str:
    """What is wrong, where the parser's own words lead astray."""
    if data.startswith(b"\xef\xbb\xbf"):
        return "it begins with a byte order mark (EF BB BF); leave that out"
    for escape in _ESCAPE.finditer(data):
        if escape[3] or (escape[1] and not escape[2]):
            half = (escape[1] or escape[3]).decode("latin-1")
            return f"\\u{half} is half of a surrogate pair (byte {escape.start()}), which is no character"
    return str(error)
