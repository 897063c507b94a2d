"""Errors as ``application/problem+json`` (RFC 9457). The only place where an error becomes bytes on this door.

What must stay true: nothing internal is shown; a fault of ours is logged once and answered as ``unwell``.
"""

import logging

from angelia.doors.http.call import PROBLEM, Call
from angelia.model.errors import AngeliaError, MethodNotAllowed, Unwell

log = logging.getLogger("angelia.http")


def as_dict(error: AngeliaError) -> dict[str, object]:
    """The members of a problem."""
    return {
        "type": f"about:blank#{error.code}",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        **error.extra,
    }


async def answer_error(call: Call, error: Exception) -> None:
    """Answer an error; nothing when an answer had begun."""
    if not isinstance(error, AngeliaError):
        log.error("a request failed: %s %s", call.scope.get("method"), call.scope.get("path"), exc_info=error)
        error = Unwell("Something broke inside the hub; its log says what. Whether it was stored is not known.")
    if call.answered:
        return
    headers: tuple[tuple[bytes, bytes], ...] = ()
    if (seconds := error.extra.get("retry_after_seconds")) is not None:
        headers += ((b"retry-after", b"%d" % int(str(seconds))),)
    if error.status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, MethodNotAllowed):
        headers += ((b"allow", str(error.extra["allow"]).encode()),)
    await call.answer(as_dict(error), error.status, kind=PROBLEM, headers=headers)
