"""A participant of this hub, and the tokens that prove who calls.

What must stay true: a handle is compared without regard to case and shown as registered; a token is kept only as the
SHA-256 of its 32 random bytes, so that whoever reads the store cannot use it.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One known name. ``member``: gets what is sent to ``*``. Times are UTC milliseconds. ``adapter``: how a turn of it
    is run, as compact JSON (``{"kind": …, …}``); None where nothing wakes it."""

    handle: str
    title: str = ""
    description: str = ""
    member: bool = False
    keyed: bool = False
    created_at: int
    seen_at: int
    adapter: bytes | None = None

    @property
    def mailbox(self) -> str:
        """The key of its mailbox."""
        return self.handle.lower()

    @property
    def has_left(self) -> bool:
        """True for a keyed name that was removed: nobody is called so, and no one without a new key ever will be."""
        return self.keyed and not self.member


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One valid token of an agent. ``ends_at`` is set when a newer one replaced it and both still work for a while."""

    id: str
    mailbox: str
    digest: bytes
    created_at: int
    ends_at: int | None = None
