"""Every refusal that a caller can see: one tree, with its code, HTTP status, and whether asking again helps.

What must stay true: a code means one thing for ever; ``detail`` says what happened, what was and was not stored and
what to do next, and holds nothing internal. Doors turn these into their own form; drivers' errors are turned into
these at the edge, so that no other kind leaves the bus. A token that a caller put into a wrong place is not repeated.

    AngeliaError
    ├─ CallerError           the caller can mend it
    │  ├─ BadRequest 400     BadJson 400 · BadName 400
    │  ├─ NotFound 404       UnknownAgent 404 · UnknownMessage 404
    │  ├─ MethodNotAllowed 405 · UnsupportedType 415
    │  ├─ TokenRequired 401
    │  ├─ Forbidden 403      NotYourName · NotAllowed · ForeignOrigin · WrongHost 421
    │  ├─ Conflict 409       IdReused · LeaseLost · NameTaken · AskCycle · AmbiguousName · RuntimeOffline
    │  └─ TooLarge 413 · HopLimit 422 · MailboxFull 429 · RateLimited 429
    └─ HubError              ours; ask again later
       └─ DiskFull 507 · OutcomeUnknown 503 · Stopping 503 · Unwell 503
"""

from angelia.model.tokens import masked


class AngeliaError(Exception):
    """The root. ``extra`` holds what helps: ``limit``, ``suggestions``, ``holder``, ``retry_after_seconds``."""

    status = 500
    code = "unwell"
    title = "The hub cannot do this now"
    retry = False

    def __init__(self, detail: str, **extra: object) -> None:
        self.detail = masked(detail)
        super().__init__(self.detail)
        self.extra = extra


class CallerError(AngeliaError):
    """The request was wrong; the same request again gives the same answer."""


class BadRequest(CallerError):
    """A field is missing, has the wrong shape, or two of them do not go together."""

    status, code, title = 400, "bad_request", "The request does not make sense"


class BadJson(CallerError):
    """The body is not JSON, or JSON that this hub does not carry (too deep, a number out of range)."""

    status, code, title = 400, "bad_json", "The body is not JSON"


class BadName(CallerError):
    """An address or name that breaks the grammar of ``model/address.py``, or a reserved one."""

    status, code, title = 400, "bad_name", "That is not a name"


class NotFound(CallerError):
    """No such path."""

    status, code, title = 404, "not_found", "There is nothing here"


class UnknownAgent(NotFound):
    """A well-formed address that nobody has; ``suggestions`` are close ones."""

    code, title = "unknown_agent", "No such agent"


class UnknownMessage(NotFound):
    """No such message, or one that this caller may not see: the two are not told apart."""

    code, title = "unknown_message", "No such message"


class MethodNotAllowed(CallerError):
    """The path exists, the method does not; ``allow`` lists those that do."""

    status, code, title = 405, "method_not_allowed", "That method does not work here"


class UnsupportedType(CallerError):
    """A body under /v1 that is not declared as JSON."""

    status, code, title = 415, "unsupported_type", "The body must be JSON"


class TokenRequired(CallerError):
    """No token, a wrong one, or a keyed name without its own."""

    status, code, title = 401, "token_required", "A token is needed"


class Forbidden(CallerError):
    """Known, and not allowed."""

    status, code, title = 403, "not_allowed", "Not allowed"


class NotYourName(Forbidden):
    """The token belongs to another agent than the one named as sender."""

    code, title = "not_your_name", "That is not your name"


class NotAllowed(Forbidden):
    """The verb takes more than this caller has."""


class ForeignOrigin(Forbidden):
    """A page of another site is calling."""

    code, title = "foreign_origin", "Pages of other sites may not call this hub"


class WrongHost(Forbidden):
    """The Host header is not one of this hub's names."""

    status, code, title = 421, "wrong_host", "This hub does not answer for that host"


class Conflict(CallerError):
    """What is there already stands against it."""

    status, code, title = 409, "conflict", "It does not fit what is there"


class IdReused(Conflict):
    """The id or idempotency key was used for another message."""

    code, title = "id_reused", "That id already belongs to another message"


class LeaseLost(Conflict):
    """The lease is over and another holder has, or had, the delivery since; ``holder`` says who."""

    code, title = "lease_lost", "The lease is over"


class NameTaken(Conflict):
    """The name that a connection is to have stands for a hub here already."""

    code, title = "name_taken", "The name is taken"


class AskCycle(Conflict):
    """The question would close a circle of agents that wait for one another."""

    code, title = "ask_cycle", "That question would wait for itself"


class AmbiguousName(Conflict):
    """Several agents on other connections are called so; ``suggestions`` are forms that lead to one each."""

    code, title = "ambiguous_name", "That is more than one agent"


class RuntimeOffline(Conflict):
    """An agent on another connection that is known to be offline; nothing was queued for it."""

    code, title, retry = "runtime_offline", "The agent is offline", True


class TooLarge(CallerError):
    """A bound of ``model/limits.py``; ``limit`` gives it."""

    status, code, title = 413, "too_large", "Too large"


class HopLimit(CallerError):
    """The message has been here before, or passed too many hubs."""

    status, code, title = 422, "hop_limit", "The message goes in circles"


class MailboxFull(CallerError):
    """The recipient's mailbox, or this sender's share of it, is full."""

    status, code, title, retry = 429, "mailbox_full", "The mailbox is full", True


class RateLimited(CallerError):
    """Too many at once: streams, names, waiting calls, wrong tokens."""

    status, code, title, retry = 429, "rate_limited", "Too many at once", True


class HubError(AngeliaError):
    """The hub's own trouble; the same request may work later."""

    status, retry = 503, True


class DiskFull(HubError):
    """Nothing was stored; acks and expiry still work."""

    status, code, title = 507, "disk_full", "The disk is full"


class OutcomeUnknown(HubError):
    """A commit failed: it may or may not be there after the restart. Ask again with the same id."""

    code, title = "outcome_unknown", "Whether it was stored is not known"


class Stopping(HubError):
    """The hub is going down; nothing was stored, unless the words say what is kept."""

    code, title = "stopping", "The hub is stopping"


class Unwell(HubError):
    """The self-test fails, or something broke inside."""
