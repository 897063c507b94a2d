"""``angelia doctor``: find out why something does not work, and say how to mend it.

What must stay true: it changes nothing but its own throw-away name; it goes on after a fault, so that one run tells
all, except of a hub that hangs, which is told once; and it ends with 0 only when nothing is wrong.
"""

from collections.abc import Iterator

from angelia.cli import checks, exits, parse, say, session, tls_key
from angelia.cli.checks import DOUBTFUL, OK, WRONG, Finding
from angelia.cli.condition import condition
from angelia.cli.kept import kept
from angelia.cli.linked import linked
from angelia.cli.round_trip import round_trips
from angelia.cli.woken import woken
from angelia.client.find import Address, read
from angelia.settings import Settings
from angelia.storage.lock import Holder, read_note

_SIGNS = {OK: "ok      ", DOUBTFUL: "doubtful", WRONG: "WRONG   "}


def run(argv: list[str], settings: Settings) -> int:
    """The command."""
    made = parse.parser("doctor", "Find out why something does not work, and how to mend it.", "angelia doctor")
    given = parse.parse(made, argv)
    session.owners_only(settings)
    found: list[Finding] = []
    for finding in _everything(settings):
        found.append(finding)
        if not given.json:
            say.line(f"{_SIGNS[finding.state]}  {finding.name}: {finding.text}")
            if finding.mend:
                say.line(f"{'':10}→ {finding.mend}")
    wrong = [finding for finding in found if finding.state == WRONG]
    if given.json:
        shown = [{"name": each.name, "state": each.state, "text": each.text, "mend": each.mend} for each in found]
        say.data({"ok": not wrong, "checks": shown})
    else:
        say.line(f"{len(wrong)} of {len(found)} checks found something wrong." if wrong else "All is well.")
    return exits.NO if wrong else exits.DONE


def _everything(settings: Settings) -> Iterator[Finding]:
    yield from checks.machine(settings)
    yield from checks.data_folder(settings)
    yield from kept(settings)
    yield from _tls_key(settings)
    holder = checks.holder_of(settings)
    yield from checks.hub(settings, holder)
    if holder is None or not holder.ready:
        return
    note = read_note(settings.data_dir)
    addresses = _addresses(note, holder)
    for address in addresses:
        if not (yield from checks.health(address, holder, settings)):
            return
    if note.get("tokens_only"):
        # The owner's token never travels by TCP.
        addresses = [address for address in addresses if address.path]
    yield from round_trips(addresses, Address(path=holder.socket) if holder.socket else None)
    if holder.socket:
        yield from condition(Address(path=holder.socket), settings)
        yield from woken(Address(path=holder.socket), settings)
        yield from linked(Address(path=holder.socket), settings)


def _tls_key(settings: Settings) -> Iterator[Finding]:
    if settings.tls_certificate is None:
        return
    wrong = tls_key.wrong_with(settings)
    if wrong is None:
        yield Finding("tls key", OK, "no other user can use it")
    else:
        yield Finding("tls key", WRONG, f"{wrong[0]}; the next start refuses it", wrong[1])


def _addresses(note: dict[str, object], holder: Holder) -> list[Address]:
    """Every way in that the hub itself says it has."""
    told = note.get("addresses")
    found = [read(url) for url in told if isinstance(url, str)] if isinstance(told, list) else []
    return [*found, Address(path=holder.socket)] if holder.socket else found
