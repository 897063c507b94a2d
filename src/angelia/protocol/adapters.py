"""What stands in an agent's ``adapter``, as far as anybody but its own kind reads it: ``{"kind": …, …options}``."""

import msgspec

from angelia.protocol.json import encode


class _Kind(msgspec.Struct):
    kind: str


_decoder = msgspec.json.Decoder(_Kind)


def kind_of(spec: bytes) -> str:
    """The kind that a specification names; ``""`` where it names none (one that was never checked)."""
    try:
        return _decoder.decode(spec).kind
    except msgspec.MsgspecError:
        return ""


def with_kind(kind: str, options: object) -> bytes:
    """Options of a kind as they are kept: compact, with the kind first."""
    fields = msgspec.to_builtins(options)
    return encode({"kind": kind, **fields})
