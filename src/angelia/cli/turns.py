"""``angelia turns``: which agents are at work, since when and for whom; and ending such a turn.

What must stay true: what is shown fits a terminal; what does not is counted. Of an id so much is shown as is that
turn's alone. The beginning of an id is enough where it leads to one turn that runs, and stops nothing where it leads to
several.
"""

from __future__ import annotations

from angelia.cli import exits, parse, say, session
from angelia.cli.ages import age, between
from angelia.cli.show import fitted, table, within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.client.calls import Calls
    from angelia.settings import Settings

LINES = 20  # of turns; a terminal has 24 lines
COLUMNS = 80
STATE, KIND = 21, 11  # letters, which every state and kind of ours has at most
ID = 12  # digits of an id: the milliseconds of its making
HEADERS = ("ID", "AGENT", "FROM", "FOR", "STATE", "BY")


def run(argv: list[str], settings: Settings) -> int:
    """List the turns, or stop one."""
    made = parse.parser(
        "turns",
        "Show the turns that run: which agent is at work, for whom and for how long. Stop one by its id, or by as\n"
        "much of it as leads to one turn alone; its sender is told that it was cancelled.",
        "angelia turns\nangelia turns --all\nangelia turns stop 0197f0c2a4b1",
    )
    made.add_argument("what", nargs="?", default="list", choices=("list", "stop"), help="list (the default)")
    made.add_argument("turn", nargs="?", metavar="ID", help="which one to stop")
    made.add_argument("--all", action="store_true", help="also those that ended, the latest first")
    given = parse.parse(made, argv)
    if (given.what == "list") != (given.turn is None):
        raise exits.UsageError(f"angelia turns {given.what} " + ("takes no ID" if given.turn else "takes an ID"))
    with session.owner(settings).looks() as hub:
        found = hub.turns()
        if given.what == "stop":
            return _stop(hub, _meant(given.turn, found), as_json=given.json)
    shown = [turn for turn in found["turns"] if given.all or turn.get("state") == "running"]
    if given.json:
        say.data({**found, "turns": shown})
    else:
        _print(shown)
    return exits.DONE


def _stop(hub: Calls, turn: dict[str, Any], *, as_json: bool) -> int:
    answer = hub.stop_turn(str(turn.get("id")))
    if as_json:
        say.data(answer)
    else:
        say.line(f"{answer.get('stopping')}: the turn of {turn.get('agent')} for {turn.get('from')} is being stopped")
    return exits.DONE


def _meant(word: str, found: dict[str, Any]) -> dict[str, Any]:
    """The running turn whose id begins so."""
    running: list[dict[str, Any]] = [turn for turn in found["turns"] if turn.get("state") == "running"]
    meant = [turn for turn in running if str(turn.get("id")).startswith(word.lower())] if word else []
    if len(meant) == 1:
        return meant[0]
    if not meant:
        raise exits.Refused(f"no turn runs whose id begins with '{word}': angelia turns lists them")
    raise exits.Refused(
        f"{len(meant)} turns run whose ids begin with '{word}': " + ", ".join(str(t["id"]) for t in meant)
    )


def _print(shown: list[dict[str, Any]]) -> None:
    if not shown:
        say.line("no turn runs")
        return
    digits = ID
    ids = {str(turn.get("id")) for turn in shown}
    while len({each[:digits] for each in ids}) < len(ids):
        digits += 1
    rows = [row(turn, digits) for turn in shown[:LINES]]
    say.lines(table(within(rows, HEADERS, COLUMNS, names=(1, 2)), HEADERS))
    if len(shown) > LINES:
        say.line(f"… and {len(shown) - LINES} more: --json")


def row(turn: dict[str, Any], digits: int = ID) -> tuple[str, ...]:
    """One line of the table."""
    state = str(turn.get("reason") or turn.get("state") or "")
    if (turn.get("attempt") or 0) > 1 and turn.get("state") == "running":
        state = f"attempt {turn['attempt']}"
    return (
        str(turn.get("id", ""))[:digits],
        str(turn.get("agent", "")),
        str(turn.get("from", "")),
        between(turn.get("since"), turn["ended"]) if turn.get("ended") else age(turn.get("since")),
        fitted(state, STATE),
        fitted(str(turn.get("kind", "")), KIND),
    )


def in_a_line(found: dict[str, Any]) -> str:
    """The turns that run, in a few words; "" where none does."""
    running = [turn for turn in found.get("turns") or [] if turn.get("state") == "running"]
    if not running:
        return ""
    told = [f"{turn.get('agent')} for {turn.get('from')} ({age(turn.get('since'))})" for turn in running]
    return f"{len(running)} {'turn runs' if len(running) == 1 else 'turns run'}: {', '.join(told)}"
