"""What can go wrong on the way to a hub and back, as a caller of either client sees it.

What must stay true: "no" and "no answer" are told apart, and whoever may have been heard is told so. Nothing is sent
twice under two ids because of an error here: the ones that leave an outcome open carry the id to ask again with.

    ClientError
    ├─ HubError        the hub said no: status, code and detail of its problem+json
    │  └─ LeaseLost    what was claimed is not ours any more
    ├─ AskFailed       the question was carried, and its outcome is a failure
    ├─ NoHub           nobody to talk to; nothing was sent
    │  ├─ NotAHub      somebody answered, who is no Angelia
    │  └─ LostHub      the connection broke after the request went out: it may have been heard
    ├─ TimedOut        no answer in time
    ├─ Superseded      another stream of this name took over: reading is over for good
    └─ OutboxError     the outbox could not be used: what was to be kept is not
       └─ OutboxFull   it holds as much as it may
"""

from __future__ import annotations


class ClientError(Exception):
    """The root. ``message_id`` names the message whose outcome is open, "" where there is none."""

    message_id = ""


class HubError(ClientError):
    """A refusal. ``extra`` holds what helps: ``limit``, ``suggestions``, ``holder``, ``retry_after_seconds``."""

    def __init__(self, status: int, code: str, title: str, detail: str, extra: dict[str, object]) -> None:
        super().__init__(detail or title)
        self.status = status
        self.code = code
        self.title = title
        self.detail = detail or title
        self.extra = extra


class LeaseLost(HubError):
    """The lease is over, and somebody else may have the message. ``extra`` says how it stands where the hub knows:
    ``state``, ``attempt``, ``holder``. What was done under the lease may be done a second time.
    """


class AskFailed(ClientError):
    """The outcome of an ``ask`` is a failure; ``reason`` is a word of a closed set, ``text`` says it for people."""

    def __init__(self, message_id: str, reason: str, text: str) -> None:
        super().__init__(text or reason)
        self.message_id = message_id
        self.reason = reason
        self.text = text


class NoHub(ClientError):
    """Nothing took the connection. ``where`` is the address that was tried, ``why`` what the system said."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"no hub at {where}: {why}")
        self.where = where
        self.why = why


class NotAHub(NoHub):
    """The address answers, but not as a hub does."""


class LostHub(NoHub):
    """The request went out, and no whole answer came back. ``kept``: over a connection that was kept from an earlier
    request, which a hub may have closed at any time, so that this says little.
    """

    def __init__(self, where: str, why: str, *, kept: bool = False) -> None:
        super().__init__(where, why)
        self.args = (f"the connection to the hub at {where} broke before it answered: {why}",)
        self.kept = kept


class TimedOut(ClientError):
    """The hub, or the agent that was asked, did not answer in ``seconds``."""

    def __init__(self, what: str, seconds: float, message_id: str = "") -> None:
        super().__init__(f"{what} did not answer within {seconds:g} s")
        self.seconds = seconds
        self.message_id = message_id


class Superseded(ClientError):
    """Another stream of the same name took over. Whoever connects again would throw that one out."""

    def __init__(self, name: str) -> None:
        super().__init__(f"another stream of {name} took over")
        self.name = name


class OutboxError(ClientError):
    """The outbox at ``path`` could not be read or written; ``message_id`` is neither sent nor kept."""

    def __init__(self, path: str, why: str, message_id: str = "") -> None:
        super().__init__(f"the outbox {path}: {why}")
        self.path = path
        self.why = why
        self.message_id = message_id


class OutboxFull(OutboxError):
    """The outbox holds as much as it may."""
