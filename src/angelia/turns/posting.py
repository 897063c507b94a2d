"""One POST to somebody outside the hub, over HTTP/1.1: a request out, an answer in, and the connection is over.

What must stay true: the connection goes to an address that was looked up and allowed, and to no other: no second
look-up, no redirect, no proxy; TLS is held to the host's name. What an endpoint sends is bounded, head and framing
included. Whoever asked is told whether the request had left: before, nothing can have happened there; after, only a
whole answer says what did. How long an answer may take is the caller's to say.
"""

import asyncio
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult

from angelia.client.aio.answer import Answer
from angelia.model.failure import Reason
from angelia.turns.outside import addresses_of, may_be_reached

CONNECT_SECONDS = (
    10.0  # looking up, TCP and TLS; whoever is there answers in two, also from the other side of the world
)
_HEAD_BYTES = 65536  # four times what usual servers send at most
_PIECE_BYTES = 65536
_PORTS = {"http": 80, "https": 443}


class NoAnswer(Exception):
    """There is none. ``reason``: why, where that is certain; None where nobody knows what became of the request.
    ``sent``: whether it had left."""

    def __init__(self, text: str, reason: Reason | None = None, *, sent: bool = True) -> None:
        super().__init__(text)
        self.text, self.reason, self.sent = text, reason, sent


async def post(
    url: SplitResult,
    content: bytes,
    headers: Mapping[str, str],
    *,
    private: bool,
    seconds: float,
    limit_bytes: int,
    context: ssl.SSLContext | None,
) -> Answer:
    """Send ``content``. Out: the whole answer, of at most ``limit_bytes``. Raises ``NoAnswer``.

    ``private``: addresses of this machine and its networks are allowed. ``seconds``: for the answer, from when the
    request was sent. ``context``: for https.
    """
    reader, writer = await _connected(url, private, context)
    try:
        writer.write(_head(url, content, headers) + content)  # nobody waits for it to be taken: a refusal comes earlier
        async with asyncio.timeout(seconds):
            return await _read(reader, limit_bytes)
    except TimeoutError:
        raise NoAnswer(
            f"The endpoint took the message and gave no answer within {seconds:.3g} s.", Reason.DELIVERY_TIMEOUT
        ) from None
    except OSError:
        raise NoAnswer("The connection to the endpoint broke before its answer was whole.") from None
    finally:
        writer.transport.abort()


async def _connected(
    url: SplitResult, private: bool, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    trouble = "The endpoint's host could not be found."
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            found = await addresses_of(host, port)
            allowed = [address for address in found if may_be_reached(address, private=private)]
            if not allowed:
                text = "The endpoint is at an address that may not be reached from here (allow_private)."
                raise NoAnswer(text, Reason.MISSING_CONFIG, sent=False)
            trouble = "Nobody listens at the endpoint."
            for address in allowed[:-1]:
                try:
                    return await _open(str(address), port, context, host)
                except ssl.SSLCertVerificationError:
                    raise
                except OSError:
                    continue
            return await _open(str(allowed[-1]), port, context, host)
    except ssl.SSLCertVerificationError:
        text = "The endpoint's certificate is not one for its name that this machine trusts."
        raise NoAnswer(text, Reason.MISSING_CONFIG, sent=False) from None
    except OSError:  # a TimeoutError is one
        raise NoAnswer(trouble, Reason.RUNTIME_OFFLINE, sent=False) from None


async def _open(
    address: str, port: int, context: ssl.SSLContext | None, host: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    named = host if context is not None else None
    return await asyncio.open_connection(address, port, ssl=context, server_hostname=named)


def _head(url: SplitResult, content: bytes, headers: Mapping[str, str]) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    given = {
        "Host": url.netloc,
        "Connection": "close",
        "Accept-Encoding": "identity",
        "Content-Length": str(len(content)),
        **headers,
    }
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii")


async def _read(reader: asyncio.StreamReader, limit_bytes: int) -> Answer:
    answer = Answer()
    came = 0
    while not answer.complete:
        data = await reader.read(_PIECE_BYTES)
        if not data:
            if answer.ends_with_connection:
                return answer
            raise NoAnswer("The endpoint closed the connection before its answer was whole.")
        came += len(data)
        answer.feed(data)
        if answer.wrong and not answer.begun:
            raise NoAnswer("What answers at the endpoint does not speak HTTP.", Reason.MISSING_CONFIG)
        if answer.wrong:
            raise NoAnswer("The endpoint's answer is broken.")
        # Framing may take as much as what it frames; a small answer may have a large head.
        most = _HEAD_BYTES + 2 * limit_bytes if answer.begun else _HEAD_BYTES
        if came > most or max(answer.length, len(answer.unread)) > limit_bytes:
            raise NoAnswer(f"The endpoint's answer is larger than {limit_bytes} bytes.", Reason.TOO_LARGE)
    return answer
