"""Envelopes and replies of Hermes' relay: what one file of ``outbox``, ``claimed`` or ``replies`` says.

What must stay true: every file is judged by itself, and whatever stands in it there is an envelope or a ``BadEnvelope``
(with the id and the connection, where so much is right, so that its sender can be answered). An id is 32 lowercase hex
digits and nothing before or after them: it becomes a file's name. What a file holds beside what is known here is kept
when it is written again.

Which reply counts (the first), and moving files about, is the door's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from angelia.model.failure import Reason, classify_output
from angelia.protocol.bot_relay import DEFAULT_PROFILE, handle_of
from angelia.protocol.bot_relay_rows import is_name, text_of
from angelia.protocol.foreign_json import Malformed, read, write

_ID = re.compile(r"[0-9a-f]{32}")
# What Hermes' Desktop reports, without a reason, of a connection that it has lost.
_DESKTOP_OFFLINE = "is not connected to this Desktop right now"
_LATEST_SECONDS = 253_402_300_800  # the end of the year 9999: what is later is no time


class BadEnvelope(ValueError):
    """A file that is no envelope. ``id``: under which its sender can be told so; ``connection``: by whom. Each is None
    where not even that is right."""

    def __init__(self, why: str, id: str | None = None, connection: str | None = None) -> None:
        """Takes what is wrong, in a sentence."""
        super().__init__(why)
        self.why, self.id, self.connection = why, id, connection


@dataclass(frozen=True, slots=True)
class RelayEnvelope:
    """One message to an agent on another connection. Times are epoch seconds.

    ``created_at``: None where the file says none (then its own time counts). ``from_profile``, ``from_handle``: empty
    where they are missing or no names: then nobody is named as the sender. ``content``: the whole object.
    """

    id: str
    created_at: float | None
    from_profile: str
    from_handle: str
    target_connection: str
    target_profile: str
    target_handle: str
    message: str
    reoffered_at: float | None
    content: dict[str, Any]

    @property
    def sender(self) -> str:
        """The handle of who says to have written it: its profile's, else the one that stands there, else ``hermes``."""
        return handle_of(self.from_profile or self.from_handle or DEFAULT_PROFILE)

    def reoffered(self, at: int) -> "RelayEnvelope":
        """The same, marked as handed out a second time."""
        return replace(self, reoffered_at=at, content={**self.content, "reoffered_at": at})

    def file(self) -> bytes:
        """The file that holds it."""
        return write(self.content)


@dataclass(frozen=True, slots=True)
class RelayReply:
    """The one answer to an envelope: ``reply``, or ``error`` and its ``reason``. ``at``: epoch seconds."""

    id: str
    at: int
    reply: str = ""
    error: str = ""
    reason: str = ""

    def file(self) -> bytes:
        """The file that holds it."""
        return write({"id": self.id, "at": self.at, "reply": self.reply, "error": self.error, "reason": self.reason})


def read_envelope(data: bytes, most_bytes: int | None = None) -> RelayEnvelope:
    """One file of ``outbox`` or ``claimed``, of any generation, of ``most_bytes`` (None: any number). Raises
    ``BadEnvelope`` and nothing else."""
    try:
        content = read(data)
    except Malformed as error:
        raise BadEnvelope(str(error)) from None
    if not isinstance(content, dict):
        raise BadEnvelope("An envelope is one JSON object.")
    id = content.get("id")
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        raise BadEnvelope("The envelope's id is not 32 lowercase hex digits.")
    try:
        if most_bytes is not None and len(data) > most_bytes:
            raise BadEnvelope(f"The envelope has more than {most_bytes} bytes.")
        return _envelope(content, id)
    except BadEnvelope as bad:
        raise BadEnvelope(bad.why, id, _name(content, "target_connection") or None) from None


def _envelope(content: dict[str, Any], id: str) -> RelayEnvelope:
    connection, profile, message = (content.get(key) for key in ("target_connection", "target_profile", "message"))
    if not is_name(connection) or not is_name(profile):
        raise BadEnvelope("The envelope names no target: a connection and a profile.")
    if not isinstance(message, str) or not message.strip():
        raise BadEnvelope("The envelope has no message.")
    return RelayEnvelope(
        id=id,
        created_at=_time(content, "created_at"),
        from_profile=_name(content, "from_profile"),
        from_handle=_name(content, "from_handle"),
        target_connection=str(connection),
        target_profile=str(profile),
        target_handle=_name(content, "target_handle") or str(profile),
        message=message,
        reoffered_at=_time(content, "reoffered_at"),
        content=content,
    )


def new_envelope(
    id: str, created_at: int, sender: tuple[str, str], target: tuple[str, str, str], message: str
) -> RelayEnvelope:
    """One to be queued. ``sender``: profile, handle; ``target``: connection, profile, handle; ``message``: with its
    header. Raises ``BadEnvelope`` where a part is not what it must be."""
    content = {
        "id": id,
        "created_at": created_at,
        "from_profile": sender[0],
        "from_handle": sender[1],
        "target_connection": target[0],
        "target_profile": target[1],
        "target_handle": target[2],
        "message": message,
    }
    return read_envelope(write(content))


def check_id(given: object) -> str:
    """The id of an envelope as a peer wrote it, trimmed. Raises ``ValueError`` where it is none, a path above all."""
    id = text_of(given)
    if _ID.fullmatch(id) is None:
        raise ValueError("The id of an envelope is 32 lowercase hex digits.")
    return id


def new_reply(
    id: object, at: int, *, reply: object = None, error: object = None, reason: object = None, names: Sequence[str] = ()
) -> RelayReply:
    """The answer that a relay brings back. Fields are coerced to text; a missing one is empty.

    A reason that is given is kept as it is; one that is missing is read out of the error, after ``names`` (target,
    connection …) were taken out of it. Raises ``ValueError`` for a bad id.
    """
    failure, why = _whole_text(error), text_of(reason)
    if failure and not why:
        offline = failure.rstrip().endswith(_DESKTOP_OFFLINE)
        why = (Reason.RUNTIME_OFFLINE if offline else classify_output(failure, names)).value
    return RelayReply(check_id(id), at, _whole_text(reply), failure, why)


def read_reply(data: bytes) -> RelayReply | None:
    """One file of ``replies``; None where it is not whole, which is as good as not there yet."""
    try:
        content = read(data)
        if not isinstance(content, dict):
            return None
        at = content.get("at")
        return RelayReply(
            check_id(content.get("id")),
            int(at) if isinstance(at, int | float) and abs(at) < _LATEST_SECONDS else 0,
            _whole_text(content.get("reply")),
            _whole_text(content.get("error")),
            text_of(content.get("reason")),
        )
    except ValueError:
        return None


def author(from_profile: str, from_handle: str, from_connection: str = "") -> dict[str, object] | None:
    """Who Hermes shall remember as the writer of a turn; None without a profile. It labels, and grants nothing.

    The profile is qualified by its connection where there is one, also by ``local``: that is the sender's, not ours.
    """
    if not is_name(from_profile):
        return None
    where = f"{from_connection}/" if is_name(from_connection) else ""
    name = from_handle if is_name(from_handle) else from_profile
    return {"id": f"bot:{where}{from_profile}", "name": name, "is_bot": True}


def _name(content: dict[str, Any], key: str) -> str:
    given = content.get(key)
    return given if isinstance(given, str) and is_name(given) else ""


def _time(content: dict[str, Any], key: str) -> float | None:
    given = content.get(key)
    if not given:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < _LATEST_SECONDS:
        raise BadEnvelope(f"The envelope's {key} is no time: it is a number of seconds since 1970.")
    return given


def _whole_text(given: object) -> str:
    """As ``text_of``, but a text is left as it is: an answer is kept whole."""
    return given if isinstance(given, str) else text_of(given)
