"""Agents and tokens are plain, frozen records."""

from dataclasses import FrozenInstanceError

import pytest

from angelia.model.agent import Agent, Token


def test_the_mailbox_of_an_agent_is_its_handle_in_lower_case() -> None:
    assert Agent(handle="DoraTheAgent", created_at=1, seen_at=1).mailbox == "doratheagent"


def test_a_name_begins_open_and_is_no_member() -> None:
    agent = Agent(handle="ann", created_at=1, seen_at=1)
    assert (agent.keyed, agent.member, agent.title, agent.description) == (False, False, "", "")


def test_neither_can_be_changed() -> None:
    agent = Agent(handle="ann", created_at=1, seen_at=1)
    token = Token(id="t", mailbox="ann", digest=b"", created_at=1)
    with pytest.raises(FrozenInstanceError):
        agent.keyed = True  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        token.ends_at = 1  # type: ignore[misc]


def test_a_token_has_no_end_until_a_newer_one_replaces_it() -> None:
    assert Token(id="t", mailbox="ann", digest=b"", created_at=1).ends_at is None
