"""What an HTTP status means that an agent reports of its model's provider.

What must stay true: only a status that leaves no doubt is a reason. Where the same number stands for several things (a
400 may be an overlong context, a 429 a rate or an empty account), the words beside it say which, and the runner reads
those: ``words`` writes them as its classifier knows them.
"""

from angelia.model.failure import Reason

_CLEAR = {
    401: Reason.PROVIDER_AUTH_OR_ACCESS,
    402: Reason.PROVIDER_QUOTA_LIMIT,
    403: Reason.PROVIDER_AUTH_OR_ACCESS,
}


def is_failure(status: object) -> bool:
    """Whether it is the status of a failure at all, and not some other number."""
    return isinstance(status, int) and 400 <= status < 600


def reason_of(status: int) -> Reason | None:
    """The reason that a status alone gives; None where its words are needed."""
    return Reason.PROVIDER_SERVER_ERROR if status >= 500 else _CLEAR.get(status)


def words(status: int, text: str) -> str:
    """A status and its words, for the classifier."""
    return f"HTTP {status}: {text}"
