"""JSON-RPC 2.0 as Hermes' gateways speak it: one frame read, answers and events written. Pure: bytes in, bytes out.

What must stay true:

- Whatever a frame holds, it is a request or it has an answer that says what is wrong with it; reading raises nothing.
- An answer carries the id of its request as it was, and null where there was none or it could not be read: a peer that
  waits for an id never waits in vain because something else in its frame was wrong.
- Every error says a reason in its data: ``unknown`` where nobody knows a better word.
- There are no batches. Params that are absent or null are none; members that nobody knows are left alone.

Which methods there are, and what they do, does not belong here. Codes and rules: Hermes' gateway.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from angelia.model.tokens import masked
from angelia.protocol.foreign_json import Malformed, read, write

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
HANDLER_CRASHED = -32000

UNKNOWN, BAD_PARAMS = "unknown", "invalid_params"  # reasons, in Hermes' words

Id = str | int | float | None


@dataclass(frozen=True, slots=True)
class Request:
    """A call. ``id`` is None where the frame had none or null: it is answered all the same, as Hermes does."""

    id: Id
    method: str
    params: dict[str, Any]


def read_frame(frame: bytes, *, max_bytes: int, depth: int) -> Request | bytes | None:
    """One frame: a ``Request``; the answer to send where it is none; None for a blank frame, which is left alone."""
    if len(frame) > max_bytes:
        return error(None, INVALID_REQUEST, f"A frame has {max_bytes} bytes at most; this one has {len(frame)}.")
    if not frame.strip():
        return None
    try:
        call = read(frame, depth)
    except Malformed as malformed:
        return error(None, PARSE_ERROR, str(malformed))
    if not isinstance(call, dict):
        return error(None, INVALID_REQUEST, "A frame is one JSON object; there are no batches.")
    id, method, params = call.get("id"), call.get("method"), call.get("params")
    if isinstance(id, bool) or not isinstance(id, str | int | float | None):
        return error(None, INVALID_REQUEST, "An id is a string, a number or null.")
    if not isinstance(method, str) or not method:
        return error(id, INVALID_REQUEST, "The method is missing: it is a string that is not empty.")
    if params is not None and not isinstance(params, dict):
        return error(id, INVALID_PARAMS, "Params are an object.", {"reason": BAD_PARAMS})
    return Request(id, method, params or {})


def result(id: Id, value: object) -> bytes:
    """The answer to a call that went well."""
    return write({"jsonrpc": "2.0", "id": id, "result": value})


def error(id: Id, code: int, message: str, data: Mapping[str, object] | None = None) -> bytes:
    """The answer to a call that did not. ``data``: what a program can act on; its ``reason`` is ``unknown`` where it
    says none. A token in ``message`` is not repeated."""
    told = {"code": code, "message": masked(message), "data": {"reason": UNKNOWN, **(data or {})}}
    return write({"jsonrpc": "2.0", "id": id, "error": told})


def event(type: str, payload: object, **more: object) -> bytes:
    """Something that the peer did not ask for. ``more``: members of params beside type and payload."""
    return write({"jsonrpc": "2.0", "method": "event", "params": {"type": type, **more, "payload": payload}})
