"""Hermes' tool ``message_agent``, as far as it needs no hub: what may be sent, who is meant, what is told.

What must stay true: the checks come in Hermes' order, and an answer has Hermes' fields. Somebody here goes before
somebody elsewhere, and nobody writes to itself: then the one of that name elsewhere is meant. Who cannot be told apart
is refused with every form that can. A reason is never read out of a text that holds names.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from angelia.model.address import LOCAL
from angelia.model.failure import Reason
from angelia.protocol.bot_relay import BODY_CHARS, DEFAULT_HANDLE, DEFAULT_PROFILE
from angelia.protocol.bot_relay_rows import Row, is_name
from angelia.protocol.bot_relay_targets import Ambiguous, ambiguous_text, forms, offline_text, resolve, slugs

# What a hub refuses with, as the reason of a message that was not taken.
_REASON_OF_CODE = {
    "too_large": Reason.TOO_LARGE,
    "mailbox_full": Reason.MAILBOX_FULL,
    "hop_limit": Reason.LOOP,
    "outcome_unknown": Reason.OUTCOME_UNKNOWN,
    "runtime_offline": Reason.RUNTIME_OFFLINE,
}


class Teammate(NamedTuple):
    """Somebody of this hub."""

    handle: str
    title: str = ""


class Team(NamedTuple):
    """Who writes, and whom it can reach. ``woken``: an answer comes to ``me`` by itself, by its stream or as a turn.

    ``local`` may hold ``me``. ``look``: finds a target on other connections, where somebody knows more than ``remote``
    tells (who was there until lately).
    """

    me: str
    woken: bool
    local: Sequence[Teammate]
    remote: Sequence[Row]
    look: Callable[[str], Row | Ambiguous | None] | None = None

    def forms(self) -> list[str]:
        """How each of them is called, but for ``me``; those of this hub first."""
        here = sorted(mate.handle for mate in self.local if mate.handle.lower() != self.me.lower())
        return [*here, *sorted(forms(self.remote, local_names(self.local)).values())]

    def elsewhere(self, target: str) -> Row | Ambiguous | None:
        """Who is meant on another connection."""
        return resolve(target, self.remote, local_names(self.local)) if self.look is None else self.look(target)


class To(NamedTuple):
    """Who is meant: the ``address`` to send to, and how it is called in an answer."""

    address: str
    shown: str


class NotSent(Exception):
    """Nothing was sent. ``answer`` is what the caller is told."""

    def __init__(self, error: str, reason: Reason = Reason.UNKNOWN, **more: object) -> None:
        super().__init__(error)
        self.answer: dict[str, object] = {"error": error, "reason": reason.value, **more}


def body_of(message: object) -> str:
    """The text that is sent. Raises ``NotSent``."""
    text = message.strip() if isinstance(message, str) else ""
    if not text:
        raise NotSent("message is empty: say what you want of them. Nothing was sent.")
    if len(text) > BODY_CHARS:
        raise NotSent(
            f"message has {len(text)} characters; {BODY_CHARS} are the most. Nothing was sent: send less, or a file's "
            "place.",
            Reason.TOO_LARGE,
        )
    if any("\ud800" <= sign <= "\udfff" for sign in text):
        raise NotSent("message holds half of a surrogate pair, which is no character. Nothing was sent.")
    return text


def find(target: object, team: Team) -> To:
    """Who ``target`` is: a name, a title or ``name@connection``, with or without ``@`` in front. Raises ``NotSent``."""
    wanted = target.strip().lstrip("@").strip() if isinstance(target, str) else ""
    if not wanted:
        raise _nobody("target is empty: name one of your teammates.", team)
    if "/" in wanted:
        raise _nobody(f"No peer is registered here, so '{_short(wanted)}' leads nowhere.", team)
    name, at, connection = wanted.partition("@")
    here = _here(name, team.local) if not at or connection.lower() == LOCAL else None
    myself = here is not None and here.lower() == team.me.lower()
    if here is not None and not myself:
        return To(here, f"@{here}")
    if here is None and not at and not is_name(wanted):
        raise _nobody(f"'{_short(wanted)}' is an invalid target: it is no name, and nobody is called so.", team)
    found = team.elsewhere(wanted)
    if isinstance(found, Ambiguous):
        raise NotSent(f"{ambiguous_text(_short(wanted), found)} Nothing was sent.", teammates=list(found.forms))
    if found is not None:
        return _there(found, team.remote)
    if myself:
        raise NotSent(f"You are @{team.me}: you cannot message yourself. Nothing was sent.")
    raise _nobody(f"You have no teammate '{_short(wanted)}'.", team)


def local_names(local: Iterable[Teammate]) -> set[str]:
    """All that those of this hub answer to."""
    return {name for mate in local for name in (mate.handle.lower(), *slugs(mate.title))}


def queued(message_id: str, to: To, at_seconds: float, *, woken: bool) -> dict[str, object]:
    """The answer to what was taken."""
    how = (
        "Its answer comes to you by itself, as a message of its own"
        if woken
        else f"Its answer will lie in your mailbox: angelia inbox; what became of it: angelia message {message_id}"
    )
    return {
        "status": "queued",
        "delivery_id": message_id,
        "to": to.shown,
        "reply_delivery": "notification" if woken else "poll",
        "detail": f"It is on the hub's disk and is handed over once {to.shown} is free. {how}. Do not send it again.",
        "queued_at": int(at_seconds),
    }


def refused(code: str, detail: str, message_id: str = "") -> dict[str, object]:
    """The answer to what a hub did not take. ``message_id`` where it may have been taken all the same."""
    reason = _REASON_OF_CODE.get(code, Reason.UNKNOWN)
    return {"error": detail, "reason": reason.value, **({"delivery_id": message_id} if message_id else {})}


def _here(name: str, local: Iterable[Teammate]) -> str | None:
    """The handle of whoever is called so here: by handle first, then by a title that only one of them has."""
    wanted = name.lower()
    wanted = DEFAULT_HANDLE if wanted == DEFAULT_PROFILE else wanted
    titled = set()
    for mate in local:
        if mate.handle.lower() == wanted:
            return mate.handle
        if wanted in slugs(mate.title) or (not is_name(wanted) and wanted == mate.title.strip().lower()):
            titled.add(mate.handle)
    return titled.pop() if len(titled) == 1 else None


def _there(row: Row, remote: Sequence[Row]) -> To:
    if row.online is False:
        raise NotSent(offline_text(row), Reason.RUNTIME_OFFLINE)
    twins = [each for each in remote if each.connection_id == row.connection_id]
    unique = sum(row.handle.lower() in (each.handle.lower(), each.profile.lower()) for each in twins) == 1
    return To(f"{row.handle if unique else row.profile}@{row.connection_id}", f"@{row.handle} on {row.where}")


def _nobody(error: str, team: Team) -> NotSent:
    return NotSent(f"{error} Nothing was sent.", teammates=team.forms(), peers=[])


def _short(target: str) -> str:
    return target[:80]
