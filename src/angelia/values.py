"""How the value of one setting is read, whether it stood in a flag, a variable or the file.

What must stay true: each takes what the file or a text may hold and gives the value as it is used; ``ValueError`` says
what is wrong with it, in words that go on after the setting's name. Standard library alone: every command loads this.
"""

import os
from collections.abc import Callable

# Names that nobody else may have, as model/address.py has them; a test compares the two.
RESERVED = ("all", "angelia", "default", "desktop", "everyone", "human", "interop", "local")


def text(value: object) -> str:
    """Some text, trimmed, without control characters."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is no text")
    if any(ord(sign) < 32 for sign in value):
        raise ValueError("holds a control character")
    return value.strip()


def path(value: object) -> str:
    """A path; ``~`` is the home."""
    return os.path.expanduser(text(value))


def number(value: object) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("is no number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is no number") from None


def seconds(value: object) -> float:
    """0.1 to 3600 seconds."""
    found = number(value)
    if not 0.1 <= found <= 3600:
        raise ValueError(f"{value!r} is out of range")
    return found


def port(value: object) -> int:
    """A TCP port; 0 is any."""
    found = number(value)
    if not 0 <= found <= 65535 or found != int(found):
        raise ValueError(f"{value!r} is no port")
    return int(found)


def path_or_off(value: object) -> str:
    """A path, or the word ``off``."""
    return "off" if value == "off" else path(value)


def name(value: object) -> str:
    """A connection's name."""
    found = text(value)
    plain = found.replace("-", "").replace("_", "")
    if not (found.isascii() and len(found) <= 64 and found[0].isalnum() and plain.isalnum()):
        raise ValueError(f"{found!r} is no name")
    return found


def free_name(value: object) -> str:
    """A connection's name that is nobody's already."""
    found = name(value)
    if found.lower() in RESERVED:
        raise ValueError(f"{found!r} is reserved")
    return found


def host_name(machine: str) -> str:
    """What a hub is called that was given no name: as its machine, or ``hub`` where that makes no name."""
    first = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "-_") else "-" for sign in machine.split(".")[0]
    )
    try:
        return free_name(first.strip("-_")[:64])
    except ValueError:
        return "hub"


def flag(value: object) -> bool:
    """Yes or no."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("1", "true", "yes", "on", "0", "false", "no", "off"):
        return value.lower() in ("1", "true", "yes", "on")
    raise ValueError(f"{value!r} is neither yes nor no")


def words(value: object) -> tuple[str, ...]:
    """A list of texts; in a text they stand between commas."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        raise ValueError("is no list")
    return tuple(text(part) for part in parts)


def variables(value: object) -> tuple[str, ...]:
    """Names of variables; ``*`` in one stands for any text. What is none is not shown: it may hold a secret."""
    found = words(value)
    for place, name in enumerate(found, 1):
        if not name.replace("*", "_").isidentifier() or not name.isascii():
            raise ValueError(f"the name at place {place} is no name of a variable")
    return found


def hosts(value: object) -> tuple[str, ...]:
    """Addresses to listen on."""
    hosts: list[str] = []
    for word in words(value):
        address = word.strip("[]")
        hosts += ["127.0.0.1", "::1"] if address == "localhost" else [address]
    for host in hosts:
        # Names other than localhost may mean several addresses, and another one tomorrow.
        if not (":" in host or host.replace(".", "").isdigit()):
            raise ValueError(f"{host!r} is no address")
    return tuple(dict.fromkeys(hosts))


def one_of(*allowed: str) -> Callable[[object], str]:
    """One of a few words."""

    def parse(value: object) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is none of them")
        return str(value)

    return parse


def url(value: object) -> str:
    """An address of a hub."""
    url = text(value).rstrip("/")
    if not url.startswith(("http://", "https://", "unix:/")):
        raise ValueError(f"{url!r} is no address of a hub")
    return url
