"""Signing in at a gateway of Hermes', as its Desktop does: by a token, or by a ticket that is good once.

What must stay true: each dial has a ticket of its own, got after a password sign-in or with a bearer token. A
credential stands in a request's body, head or address, and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from angelia.links.place import Answer, Place
from angelia.links.port import Kind, Trouble
from angelia.links.secrets import password_of, token_of
from angelia.links.troubles import of_status, refused, unknown
from angelia.model.connection import Connection

_PASSWORDS = "basic"  # what Hermes calls its own list of users; other providers may take passwords, too


@dataclass(frozen=True, slots=True)
class Pass:
    """What lets us in. ``query``: behind the address; ``is_ticket``: it is good once, and for half a minute."""

    query: str = ""
    is_ticket: bool = False


async def sign_in(place: Place, connection: Connection, environment: Mapping[str, str]) -> Pass:
    """Find out what a gateway asks for, and get it. Raises ``Trouble``, and what ``Place.ask`` raises."""
    answer = await place.ask("GET", "/api/status")
    if answer.status != 200 and answer.status != 404:
        raise of_status(answer.status, place.name, signed_in=False)
    about = answer.json
    if answer.status == 404 or not {"version", "auth_required"} & about.keys():
        raise unknown(f"What answers at {place.name} is neither a hub of Angelia's nor a gateway of Hermes'.")
    if about.get("auth_required") is True:
        return Pass(f"?ticket={quote(await _ticket(place, connection, environment, about), safe='')}", True)
    token = token_of(connection, environment)
    return Pass(f"?token={quote(token, safe='')}" if token else "")


async def _ticket(
    place: Place, connection: Connection, environment: Mapping[str, str], about: Mapping[str, object]
) -> str:
    """A ticket, which is good once."""
    password = password_of(connection, environment)
    if connection.user is not None and password is not None:
        cookies = await _log_in(place, connection.user, password, about)
        head = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    elif token := token_of(connection, environment):
        head = {"Authorization": f"Bearer {token}"}
    else:
        advice = "Name --user and --password-file, or --token-file; the files with chmod 600."
        raise refused(f"{place.name} asks for a sign-in.", advice)
    answer = await place.ask("POST", "/api/auth/ws-ticket", headers=head)
    if answer.status != 200:
        raise of_status(answer.status, place.name, signed_in=True)
    ticket = answer.json.get("ticket")
    if not isinstance(ticket, str) or not ticket:
        raise unknown(f"{place.name} gave no ticket for its gateway.")
    return ticket


async def _log_in(place: Place, user: str, password: str, about: Mapping[str, object]) -> dict[str, str]:
    """The cookies of a sign-in by password."""
    answer = Answer()
    for provider in _providers(about.get("auth_providers")):
        body = {"provider": provider, "username": user, "password": password}
        answer = await place.ask("POST", "/auth/password-login", body=body)
        if answer.status not in (400, 404):  # it knows of no such provider, or of none that takes a password
            break
    if answer.status in (400, 404):
        raise refused(f"{place.name} takes no password.", "Name a token: --token-file.")
    if answer.status == 503:
        raise Trouble(Kind.UNREACHABLE, f"{place.name} cannot sign anybody in now.", "Look at its log.")
    if not 200 <= answer.status < 300:
        raise of_status(answer.status, place.name, signed_in=True)
    return answer.cookies


def _providers(given: object) -> list[str]:
    """Whom to ask, the likeliest first. They come by name, or as objects with one."""
    listed = given if isinstance(given, list) else []
    names = [entry.get("name") if isinstance(entry, dict) else entry for entry in listed]
    found = [name for name in names if isinstance(name, str)] or [_PASSWORDS]
    return sorted(found, key=lambda name: name != _PASSWORDS)
