"""How two hubs come to trust a line: who each is, and the proof that both know the same secret.

What must stay true:

- The secret never crosses: both sides prove that they have it, by an HMAC over what both have said, and neither goes on
  before the other has. A proof is good for one line and one direction alone.
- A code is typed once, lives for minutes, and is gone after some wrong guesses. What two hubs keep afterwards is made
  from it and from both nonces, through scrypt: who only listened would have to try 2^60 codes at that price.
- Whoever came in as the owner of the other hub (through ssh, or a command) has proved enough.
"""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from angelia.links.port import Kind, Trouble
from angelia.model.address import check_handle
from angelia.model.envelope import check_id
from angelia.model.errors import AngeliaError
from angelia.protocol.gateway import Refusal
from angelia.protocol.hub import VERSION

log = logging.getLogger("angelia.links")
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"  # 32 letters that nobody takes for one another
CODE_LETTERS = 12  # 60 bits
CODE_SECONDS = 600.0  # to walk over to the other machine
WRONG_GUESSES = 5
_SCRYPT = {"n": 2**15, "r": 8, "p": 1, "maxmem": 64 * 1024 * 1024, "dklen": 32}  # 32 MiB and some 80 ms for one guess

OWNER, KEY, FOLDER, CODE = "owner", "key", "folder", "code"  # what a proof is made with


class Offer:
    """The code that is on somebody's screen now, if one is."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._code: str | None = None
        self._ends = 0.0
        self._wrong = 0
        self.guesses = ThreadPoolExecutor(1, "guess")  # one at a time, whoever asks: each takes 32 MiB and a core

    def make(self) -> str:
        """A new code, in place of the one before: ``ABCD-EFGH-JKLM``."""
        letters = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LETTERS))
        self._code, self._ends, self._wrong = letters, self._clock() + CODE_SECONDS, 0
        return "-".join(letters[start : start + 4] for start in range(0, CODE_LETTERS, 4))

    def open(self) -> str | None:
        """The code, while it is good."""
        return self._code if self._code is not None and self._clock() < self._ends else None

    def wrong(self) -> None:
        """Somebody guessed."""
        self._wrong += 1
        log.warning("somebody gave a wrong code to pair with this hub (%d of %d)", self._wrong, WRONG_GUESSES)
        if self._wrong >= WRONG_GUESSES:
            self._code = None
            log.warning("the code is no longer good, after so many wrong ones: angelia pair shows another")

    def used(self) -> None:
        """It has done its work."""
        self._code = None


@dataclass(frozen=True, slots=True)
class Greeting:
    """What both sides of a line have said of themselves. Ids of hubs, names, and a nonce of each (hex)."""

    dialler: str
    dialler_name: str
    acceptor: str
    acceptor_name: str
    nonces: str
    by: str

    def proof(self, key: bytes, side: str) -> str:
        """That ``side`` (dialler or acceptor) knows the key."""
        return hmac.new(key, self._words("angelia link " + side), hashlib.sha256).hexdigest()

    def is_proof(self, key: bytes, side: str, given: object) -> bool:
        """Whether it is one; in constant time."""
        return isinstance(given, str) and hmac.compare_digest(self.proof(key, side).encode(), given.encode())

    def key_of(self, code: str) -> bytes:
        """The secret that a code stands for on this line. Slow: not for the event loop."""
        letters = "".join(code.upper().replace("-", " ").split())
        return hashlib.scrypt(letters.encode(), salt=self.nonces.encode(), **_SCRYPT)

    def lasting_key(self, key: bytes) -> bytes:
        """What both keep after a code has done its work."""
        return hmac.new(key, self._words("angelia link key"), hashlib.sha256).digest()

    def _words(self, what: str) -> bytes:
        said = (what, str(VERSION), self.by, self.dialler, self.acceptor, self.nonces)
        return "\n".join(said).encode()


def nonce() -> str:
    """32 random bytes, as hex."""
    return secrets.token_hex(32)


def read_epoch(said: dict[str, Any]) -> str:
    """The epoch of the other side's store: another one after a backup was put back. Empty where it says none."""
    epoch = said.get("epoch")
    return epoch if isinstance(epoch, str) and len(epoch) <= 64 else ""


def read_hello(params: dict[str, Any]) -> tuple[str, str, str, str]:
    """The dialler's id, name, nonce, and what it proves by. ``Refusal`` where it speaks another version."""
    check_version(params.get("version"))
    by = params.get("by")
    if by not in (OWNER, KEY, FOLDER, CODE):
        raise Refusal(400, "by is none of owner, key, folder and code.", {"reason": "wrong_version"})
    return (*_self(params), by)


def read_welcome(answer: object) -> tuple[str, str, str]:
    """The acceptor's id, name and nonce. ``Trouble`` where it is not one."""
    try:
        if not isinstance(answer, dict):
            raise Refusal(400, "no welcome")
        check_version(answer.get("version"))
        return _self(answer)
    except (Refusal, AngeliaError) as error:
        raise Trouble(
            Kind.WRONG_VERSION,
            f"The other side does not speak as hubs of this version do: {str(error).rstrip('.')}.",
            "Bring both machines to the same version of Angelia.",
            lasting=True,
        ) from None


def check_version(given: object) -> None:
    """``Refusal`` for any but ours."""
    if given != VERSION:
        raise Refusal(
            400, f"This hub speaks version {VERSION} between hubs, not {given!r}.", {"reason": "wrong_version"}
        )


def _self(said: dict[str, Any]) -> tuple[str, str, str]:
    given = said.get("nonce")
    if not isinstance(given, str) or not 32 <= len(given) <= 256:
        raise Refusal(400, "nonce is 32 random bytes as hex.", {"reason": "wrong_version"})
    return check_id(said.get("hub"), "hub"), check_handle(said.get("name"), "name"), given
