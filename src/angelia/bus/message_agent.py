"""``message_agent`` for callers that speak to the bus itself, such as the gateway.

What must stay true: whatever is asked, there is an answer of Hermes' shape: queued, or an error with its reason, and
then nothing was stored (a commit of unknown outcome says its message's id). What may be sent, and who is meant, stands
in ``protocol/message_agent.py``, which the client shares.
"""

from angelia.bus.core import Bus
from angelia.bus.draft import Draft
from angelia.bus.publish import publish
from angelia.bus.remotes import Remote
from angelia.model.address import PERSON
from angelia.model.envelope import Intent, Lane
from angelia.model.errors import AngeliaError, OutcomeUnknown
from angelia.protocol.bot_relay_rows import Row
from angelia.protocol.bot_relay_targets import Ambiguous
from angelia.protocol.message_agent import NotSent, Team, Teammate, body_of, find, local_names, queued, refused


async def message_agent(
    bus: Bus, sender: str, target: object, message: object, *, verified: bool, id: str | None = None
) -> dict[str, object]:
    """Send ``message`` as a request. Out: what the tool answers.

    ``sender`` and ``verified``: as the table of callers gave them (``bus.identify``). ``id``: the message's own, where
    the caller may repeat itself.
    """
    message_id = id or bus.ids.message_id()
    try:
        text = body_of(message)
        team = team_of(bus, sender)
        to = find(target, team)
        draft = Draft(
            sender=sender,
            verified=verified,
            to=to.address,
            text=text,
            intent=Intent.REQUEST,
            id=message_id,
            lane=Lane.PERSON if sender == PERSON else Lane.NORMAL,
        )
        accepted = await publish(bus, draft)
    except NotSent as error:
        return error.answer
    except AngeliaError as error:
        return refused(error.code, error.detail, message_id if isinstance(error, OutcomeUnknown) else "")
    return queued(accepted.envelope.id, to, accepted.envelope.created_at / 1000, woken=team.woken)


def team_of(bus: Bus, name: str) -> Team:
    """Whom an agent of this hub can write to."""
    me, now = bus.directory.find(name.lower()), bus.clock.now()
    woken = bus.streams.own(name.lower()) is not None or (me is not None and me.adapter is not None)
    local = [*(Teammate(agent.handle, agent.title) for agent in bus.directory.agents.values()), Teammate(PERSON)]

    def look(target: str) -> Row | Ambiguous | None:
        found = bus.remotes.find(target, local_names(local), now, bus.limits)
        return found.shown if isinstance(found, Remote) else found

    return Team(name, woken, local, bus.remotes.rows(now, bus.limits), look)
