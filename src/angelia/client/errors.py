"""What can go wrong on the way to a hub and back, as a caller of the client sees it.

What must stay true: "no" and "no answer" are told apart, and whoever may have been heard is told so. Nothing is sent
twice under two ids because of an error here: the ones that leave an outcome open carry the id to ask again with.

    ClientError
    ├─ HubError        the hub said no: status, code and detail of its problem+json
    ├─ AskFailed       the question was carried, and its outcome is a failure
    ├─ NoHub           nobody to talk to; nothing was sent
    │  ├─ NotAHub      somebody answered, who is no Angelia
    │  └─ LostHub      the connection broke after the request went out: it may have been heard
    └─ TimedOut        no answer in time
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
    """The request went out, and no whole answer came back."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(where, why)
        self.args = (f"the connection to the hub at {where} broke before it answered: {why}",)


class TimedOut(ClientError):
    """The hub, or the agent that was asked, did not answer in ``seconds``."""

    def __init__(self, what: str, seconds: float, message_id: str = "") -> None:
        super().__init__(f"{what} did not answer within {seconds:g} s")
        self.seconds = seconds
        self.message_id = message_id
