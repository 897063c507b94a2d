"""``angelia join``: make a name an agent's own, and say how the hub wakes it.

What must stay true: the owner does this, whoever ``--as`` says. A token that works is kept, so that joining twice does
no harm; one that was lost is replaced. The token itself is never printed. How an agent is woken stays as it was unless
it is said anew.
"""

from __future__ import annotations

from angelia.cli import adapter, exits, parse, say, session, tokens
from angelia.client.calls import ABSENT, Calls
from angelia.client.errors import HubError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from angelia.settings import Settings


def run(argv: list[str], settings: Settings) -> int:
    """Make the name known and key it, unless ``--open``."""
    made = parse.parser(
        "join",
        "Make a name known here, and key it: from then on it takes the token that this keeps in a file. Where it is\n"
        "said how, the hub wakes it for each message, and its answer goes back to the sender.",
        "angelia join scout --title 'Scout' --description 'reads the news'\n"
        "angelia join counter --command 'wc -w'\n"
        "angelia join reviewer --adapter claude_code --option folder=/srv/review --conversation thread",
    )
    made.add_argument("name", metavar="NAME", help="1 to 64 letters, digits, _ or -")
    made.add_argument("--open", action="store_true", help="leave it open: anyone on this machine may use it")
    made.add_argument("--title", type=str, metavar="TEXT", help="what it is called")
    made.add_argument("--description", type=str, metavar="TEXT",
                      help="what it does, for others to know when to write to it")  # fmt: skip
    adapter.add_arguments(made)
    given = parse.parse(made, argv)
    name = tokens.check_name(given.name)
    waked_by = adapter.read(given)
    way = session.owner(settings)
    with way.looks() as hub:
        with tokens.one_at_a_time(settings.data_dir):
            agent = hub.put_agent(name, title=given.title, description=given.description, adapter=waked_by)
            path = None if given.open else _keyed(settings, way, hub, name, keyed=bool(agent.get("keyed")))
        trouble = _trouble(hub, name) if isinstance(waked_by, dict) else None
    if given.json:
        keyed = path is not None or bool(agent.get("keyed"))
        more = {} if waked_by is ABSENT else {"adapter": agent.get("adapter"), "problem": trouble}
        say.data({"agent": name, "keyed": keyed, "token_file": path, **more})
        return exits.DONE
    woken = bool(agent.get("adapter"))
    if path is not None:
        say.line(path)
        use = "" if woken else f" Use it: angelia listen --as {name}"
        say.aside(f"{name} is keyed; its token is in that file.{use}")
    elif agent.get("keyed"):
        say.line(f"{name} is known, and was keyed before: --open does not change that")
    else:
        say.line(f"{name} is known and open")
    if trouble:
        say.aside(f"the hub is to wake {name} for each message, but it cannot be woken yet: {trouble}")
    elif woken:
        say.aside(f"the hub wakes {name} for each message. Try it: angelia wake {name}")
    return exits.DONE


def _keyed(settings: Settings, way: session.Way, hub: Calls, name: str, *, keyed: bool) -> str:
    """The file with a token of the agent's that works, the one that was kept or a new one."""
    path = tokens.find(settings.data_dir, name)
    if path is not None and _works(way, name, tokens.read(settings.data_dir, name)):
        return path
    if keyed:
        say.aside(f"{name} was keyed before; if a token made for it elsewhere still works, it ends soon")
    return tokens.save(settings.data_dir, name, hub.new_token(name)["token"])


def _trouble(hub: Calls, name: str) -> str | None:
    """Why it cannot be woken as things stand; None where it can."""
    try:
        problem = hub.check_agent(name).get("problem")
    except HubError as error:
        return error.detail
    return str(problem).replace("allow_private", "--allow-private") if problem else None


def _works(way: session.Way, name: str, token: str | None) -> bool:
    """Whether a token that is kept from earlier still opens its mailbox."""
    try:
        with Calls(way.address, name=name, token=token, answer_seconds=session.LOOK_SECONDS) as hub:
            hub.inbox(limit=1)
    except HubError as error:
        if error.status in (401, 403):
            return False
        raise
    return True
