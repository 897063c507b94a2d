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


def secrets_in(spec: bytes) -> set[str]:
    """The names of variables that a specification takes secrets from: its options that end in ``_env``."""
    try:
        options = msgspec.json.decode(spec, type=dict[str, object])
    except msgspec.MsgspecError:
        return set()
    return {value for name, value in options.items() if name.endswith("_env") and isinstance(value, str)}


def with_kind(kind: str, options: object) -> bytes:
    """Options of a kind as they are kept: compact, with the kind first."""
    fields = msgspec.to_builtins(options)
    return encode({"kind": kind, **fields})
