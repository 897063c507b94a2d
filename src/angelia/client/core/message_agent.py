"""``message_agent``, as Hermes' tool has it, over the calls of a hub.

What must stay true: what is wrong with the message or its target, and what the hub refuses, is an answer with a reason;
that no hub answers is an error as for every call. What may be sent, and who is meant, stands in
``protocol/message_agent.py``, which the bus shares. Only a call of it loads this file: no other command pays for it.
"""

from __future__ import annotations

from angelia.client.errors import HubError
from angelia.model.address import LOCAL, PERSON
from angelia.protocol.bot_relay_rows import normalise
from angelia.protocol.message_agent import NotSent, Team, Teammate, body_of, find, queued, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from angelia.client.core.steps import Plan
    from angelia.client.core.verbs import Verbs


def plan(verbs: Verbs, target: str, message: str) -> Plan[dict[str, Any]]:
    """See ``Verbs.message_agent``."""
    name = verbs.post.name or ""
    try:
        text = body_of(message)
        team = team_of(name, (yield from verbs.agents()))
        to = find(target, team)
        sent = yield from verbs.send(to.address, text, intent="request")
    except NotSent as error:
        return error.answer
    except HubError as error:
        return refused(error.code, error.detail, error.message_id)
    return queued(sent["id"], to, verbs.post.wall(), woken=team.woken)


def team_of(name: str, agents: list[dict[str, Any]]) -> Team:
    """Whom ``name`` can write to, out of a hub's roster."""
    woken = False
    local, remote = [Teammate(PERSON)], []
    for agent in agents:
        handle, title = str(agent.get("handle")), str(agent.get("title") or "")
        if agent.get("connection") not in (None, LOCAL):
            remote.append(_row(agent))
            continue
        local.append(Teammate(handle, title))
        if handle.lower() == name.lower():
            woken = agent.get("presence") == "online" or agent.get("adapter") is not None
    return Team(name, woken, local, normalise(remote).rows)


def _row(agent: dict[str, Any]) -> dict[str, object]:
    """A row of the roster as Hermes' relay has it."""
    presence = agent.get("presence")
    return {
        "connection_id": agent.get("connection"),
        "connection_label": agent.get("connection_label"),
        "profile": agent.get("profile") or agent.get("handle"),
        "handle": agent.get("handle"),
        "title": agent.get("title"),
        "online": {"online": True, "offline": False}.get(str(presence)),
    }
