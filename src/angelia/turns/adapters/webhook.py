"""An agent behind an HTTP endpoint: the message as a signed POST (Standard Webhooks), the answer in the response, or
later.

What must stay true: ``webhook-id`` is the message's id in every attempt, so that the endpoint can tell a repeat; that
is why nothing needs to be recalled. A status alone is no answer: one stands in the body, in a form that was agreed on,
or it comes later by a reply.
"""

import asyncio
import ssl
import time
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import msgspec

from angelia import __version__
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.protocol import webhooks
from angelia.protocol.times import rfc3339
from angelia.turns.adapters.port import Accepted, Answered, Failed, Found, Kind, Lost, Outcome, Tools, Turn
from angelia.turns.adapters.webhook_options import WebhookOptions, check, secrets_of
from angelia.turns.outside import addresses_of, may_be_reached
from angelia.turns.posting import NoAnswer, post

ROUTE = "webhook"
_LIMIT_BYTES = Limits().reply_bytes
# Of the time that a turn has: the runner ends one that takes longer, and then nobody would say that it may have run.
_SHARE = 0.95
_REASONS = {
    401: Reason.PROVIDER_AUTH_OR_ACCESS,
    402: Reason.PROVIDER_QUOTA_LIMIT,
    403: Reason.PROVIDER_AUTH_OR_ACCESS,
    404: Reason.MISSING_CONFIG,
    405: Reason.MISSING_CONFIG,
    410: Reason.MISSING_CONFIG,
    413: Reason.TOO_LARGE,
    429: Reason.PROVIDER_RATE_LIMIT,
}
_TEXTS = {
    401: "The endpoint does not accept our signature (401).",
    403: "The endpoint does not let us in (403).",
    404: "There is no endpoint at that address (404).",
    410: "The endpoint is gone for good (410); join the agent anew with another, or let it go.",
}


class Webhook:
    """One endpoint."""

    def __init__(self, options: WebhookOptions, tools: Tools) -> None:
        self._options, self._tools = options, tools
        self._url = urlsplit(options.url)
        self._context: ssl.SSLContext | None = None  # made when it is needed first: that takes some 20 ms

    async def run(self, turn: Turn) -> Outcome:
        """Post it once; see ``Adapter``."""
        secrets = secrets_of(self._options, self._tools)
        content = _content(turn)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/plain",
            "User-Agent": f"angelia/{__version__}",
            **webhooks.headers(secrets, turn.message.id, int(time.time()), content),
        }
        try:
            answer = await post(
                self._url,
                content,
                headers,
                private=self._options.allow_private,
                seconds=turn.seconds * _SHARE,
                limit_bytes=_LIMIT_BYTES,
                context=await self._tls(),
            )
        except NoAnswer as error:
            if error.reason is None:
                return Lost(error.text, ROUTE)
            return Failed(error.text, ROUTE, reason=error.reason, began=error.sent)
        if 200 <= answer.status < 300:
            return self._answered(answer.status, answer.header("content-type"), answer.take())
        return refusal(
            answer.status, answer.header("retry-after"), answer.take().decode("utf-8", "replace"), time.time()
        )

    async def _tls(self) -> ssl.SSLContext | None:
        if self._url.scheme == "https" and self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context)
        return self._context

    def _answered(self, status: int, content_type: str, body: bytes) -> Outcome:
        if not body or status in (202, 204) or self._options.answer == "later":
            return Accepted(ROUTE)
        kind = content_type.partition(";")[0].strip().lower()
        if kind == "text/plain":
            return Answered(body.decode("utf-8", "replace"), ROUTE)
        if kind.endswith(("/json", "+json")):
            return _in_json(body)
        text = f"The endpoint answered with '{kind[:40]}'; an answer is application/json or text/plain."
        return Failed(text, ROUTE, reason=Reason.MISSING_CONFIG)

    async def recall(self, turn: Turn) -> Outcome | None:
        """Nothing to look at: posting it again, under the same id, is how an endpoint is asked."""
        return None

    async def close(self) -> None:
        """Nothing is warm."""


def _in_json(body: bytes) -> Outcome:
    """The answer that stands in a JSON object; one without an answer has taken the message, and answers later."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        text = "The endpoint says that it answers in JSON, and does not."
        return Failed(text, ROUTE, output=body.decode("utf-8", "replace"))
    for name in ("text", "reply"):
        if isinstance(found, dict) and isinstance(found.get(name), str):
            return Answered(found[name], ROUTE)
    return Accepted(ROUTE)


def refusal(status: int, retry_after: str, output: str, now: float) -> Failed:
    """What an answer means that is no success. ``now``: UTC seconds."""
    wait = _seconds(retry_after, now)
    reason = _REASONS.get(status)
    text = _TEXTS.get(status, f"The endpoint answered {status}.")
    if 300 <= status < 400:
        reason = Reason.MISSING_CONFIG
        text = (
            f"The endpoint answered {status}, and redirects are not followed; join it by the address that it has now."
        )
    elif status == 503 and wait is not None:
        reason = Reason.PROVIDER_RATE_LIMIT
    elif status >= 500:
        return Failed(text, ROUTE, reason=Reason.PROVIDER_SERVER_ERROR, wait_seconds=wait)
    return Failed(text, ROUTE, reason=reason, output="" if reason else output, began=reason is None, wait_seconds=wait)


def _seconds(retry_after: str, now: float) -> float | None:
    """How long to wait, by a ``Retry-After``: seconds, or a date."""
    if not retry_after:
        return None
    try:
        if retry_after.isdecimal():
            return float(retry_after)
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (ValueError, OverflowError):
        return None


def _content(turn: Turn) -> bytes:
    message = turn.message
    base = turn.environment.get("ANGELIA_URL")
    data = {
        "id": message.id,
        "from": message.sender,
        "to": message.to,
        "verified": message.verified,
        "intent": message.intent.value,
        "kind": message.kind.value,
        "thread": message.thread,
        "in_reply_to": message.in_reply_to,
        "text": turn.text,
        "body": None if message.body is None else msgspec.Raw(message.body),
        "conversation": turn.conversation,
        "reply_url": f"{base}/v1/messages/{message.id}/reply" if base else None,
    }
    return msgspec.json.encode({"type": "message", "timestamp": rfc3339(message.created_at), "data": data})


async def detect(options: WebhookOptions, tools: Tools) -> Found:
    """Look whether the endpoint's host can be found and reached from here; nothing is sent."""
    url = urlsplit(options.url)
    try:
        found = await addresses_of(url.hostname or "", url.port or 443)
    except OSError as error:
        return Found(problem=f"The host {url.hostname} cannot be found: {error.strerror or error}.")
    if not any(may_be_reached(address, private=options.allow_private) for address in found):
        allow = "join it with allow_private, if it is meant to be"
        return Found(problem=f"The host {url.hostname} is on this machine, its networks or beyond reach: {allow}.")
    return Found(ways=(ROUTE,))


KIND = Kind(
    name="webhook",
    title="an HTTP endpoint (Standard Webhooks)",
    options=WebhookOptions,
    make=Webhook,
    detect=detect,
    check=check,
    resumes=False,
)
