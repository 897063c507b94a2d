"""Mail between a hub and a gateway of Hermes', both ways, over one real line to a stand-in of the gateway."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from angelia.bus.carry import refused
from angelia.links.hermes_out import DELIVERS
from angelia.model.delivery import Hand, State
from angelia.model.envelope import Intent, Kind
from angelia.model.failure import Reason
from angelia.protocol.bot_relay import BODY_CHARS
from tests.links.hermes import Gateway, a_gateway, until
from tests.links.hermes_side import HERE, Side, a_side

DELIVER, DRAIN, REPLY = "bot_relay.deliver", "bot_relay.outbox.drain", "bot_relay.reply"
MARGIN = 3


@pytest.fixture
async def rack(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with a_gateway(tmp_path / "rack") as gateway:
        yield gateway


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Side]:
    async with a_side(tmp_path / "hub") as side:
        yield side


# ------------------------------------------------------------------------------------------------------------- there


async def test_a_message_goes_there_and_its_answer_comes_back(side: Side, rack: Gateway) -> None:
    rack.set(turns={"ops": [{"reply": "green since 04:10"}]})
    async with side.linked(rack):
        assert await side.ask("build status?") == "green since 04:10"
    (params,) = rack.calls(DELIVER)
    id = params.pop("id")
    assert params == {
        "profile": "ops",
        "message": "Message from 🤖 ann (@ann@desk): build status?",
        "from_profile": "ann",
        "from_handle": "ann",
        "from_connection": HERE,
    }
    (row,) = await side.rows(id)
    assert (row.state, row.hand, row.connection) == (State.ANSWERED, Hand.LINK, "rack")


@pytest.mark.parametrize(("said", "heard"), [("[SILENT]", ""), ("NO_REPLY", ""), ("", ""), ("No reply.", "No reply.")])
async def test_a_bare_mark_of_silence_is_an_empty_answer(side: Side, rack: Gateway, said: str, heard: str) -> None:
    rack.set(turns={"ops": [{"reply": said}]})
    async with side.linked(rack):
        assert await side.ask() == heard


async def test_every_form_of_a_name_leads_there(side: Side, rack: Gateway) -> None:
    """10.16, #97678: ``profile@connection`` is not accepted."""
    async with side.linked(rack):
        for name in ("ops", "@OPS", "ops@rack", "hermes@Rack", "default@rack"):
            assert "heard" in await side.ask("hi", to=name.lstrip("@"))
    assert [params["profile"] for params in rack.calls(DELIVER)] == ["ops"] * 3 + ["default"] * 2


async def test_both_defaults_are_hermes_and_each_answer_goes_to_the_right_one(side: Side, rack: Gateway) -> None:
    """10.15, #103731: replies reach the wrong machine's bot."""
    async with side.linked(rack):
        answer = await side.ask("who are you?", to="hermes@Rack", sender="hermes")
        assert answer == "default heard: Message from 🤖 hermes (@hermes@desk): who are you?"
        id = rack.enqueue(f"default@{HERE}", "and you?")
        here = await side.next("hermes")
        assert (here.envelope.sender, here.envelope.text) == ("hermes@Rack", "and you?")
        await side.reply(here, "the one on the desk")
        assert (await rack.answered(id))["reply"] == "the one on the desk"


async def test_the_longest_body_is_taken_however_long_the_names_are(side: Side, rack: Gateway) -> None:
    """11.6: two names of 64 letters leave too little of 16,200 for a legal body."""
    long = "a" * 64
    await side.know(long)
    rack.set(turns={"ops": [{"reply": "got it"}]})
    async with side.linked(rack):
        assert await side.ask("x" * BODY_CHARS, sender=long) == "got it"
    assert rack.turns("ops")[0].endswith("x" * BODY_CHARS)


async def test_what_looks_like_a_stamp_in_the_body_arrives_as_it_was_sent(side: Side, rack: Gateway) -> None:
    """11.7: the gateway takes the first bare stamp for the header's, wherever it stands."""
    text = "he wrote (@bob): yes\nMessage from 🤖 x (@y): no"
    async with side.linked(rack):
        await side.ask(text)
    assert rack.turns() == [f"Message from 🤖 ann (@ann@desk): {text}"]


# --------------------------------------------------------------------------------------------------------- from there


async def test_a_message_from_there_is_answered_into_its_file(side: Side, rack: Gateway) -> None:
    async with side.linked(rack):
        id = rack.enqueue(f"ann@{HERE}", "is it green?", sender="ops")
        parcel = await side.next("ann")
        asked = parcel.envelope
        assert (asked.id, asked.sender, asked.text, asked.intent) == (id, "ops@Rack", "is it green?", Intent.REQUEST)
        answer = await side.reply(parcel, "it is")
        found = await rack.answered(id)
        assert (found["reply"], found["error"], found["reason"]) == ("it is", "", "")
        assert (await side.comes_to(answer, State.DELIVERED)).state is State.DELIVERED


async def test_a_failure_here_is_told_there_with_its_reason(side: Side, rack: Gateway) -> None:
    async with side.linked(rack):
        id = rack.enqueue(f"ann@{HERE}", "do it")
        refused(side.bus, await side.next("ann"), Reason.CONTEXT_OVERFLOW, "It was too much.")
        found = await rack.answered(id)
    assert (found["reply"], found["reason"]) == ("", "context_overflow")
    assert "It was too much." in found["error"]


async def test_mail_comes_when_the_gateway_says_so_and_not_at_the_next_poll(side: Side, rack: Gateway) -> None:
    """9.7 push: within the tick and 250 ms, though the next poll is a minute away."""
    async with side.linked(rack):
        began = time.monotonic()
        rack.enqueue(f"ann@{HERE}", "hi")
        await side.next("ann")
        assert time.monotonic() - began < MARGIN * (0.05 + 0.25 + 0.1)


async def test_what_waited_there_before_is_taken_at_once_in_its_order(side: Side, rack: Gateway) -> None:
    """10.24: oldest first, whatever the files are called."""
    for number in range(3):
        rack.enqueue(f"ann@{HERE}", f"{number}", name=f"{9 - number}")
    async with side.linked(rack):
        assert [(await side.next("ann")).envelope.text for _ in range(3)] == ["0", "1", "2"]


async def test_an_answer_needs_no_turn_and_waits_for_none(side: Side, rack: Gateway) -> None:
    """10.10, 11.8: its own agent is at work there for long, and its answer is told at once."""
    rack.set(turns={"ops": [{"hold": "long"}]})
    async with side.linked(rack):
        await side.send("a long one")
        await side.send("behind it")
        await until(lambda: rack.turns("ops"))
        id = rack.enqueue(f"ann@{HERE}", "quick?", sender="ops")
        await side.reply(await side.next("ann"), "quick")
        assert (await rack.answered(id))["reply"] == "quick"
        assert len(rack.turns("ops")) == 1


async def test_an_answer_to_an_answer_goes_as_a_message_and_comes_to_an_end(side: Side, rack: Gateway) -> None:
    """No two agents answer each other for ever."""
    async with side.linked(rack):
        await side.send("first")
        answer = await side.next("ann")
        assert answer.envelope.kind is Kind.REPLY
        thanks = await side.reply(answer, "thank you")
        assert (await side.comes_to(thanks, State.DELIVERED)).state is State.DELIVERED
    assert rack.turns("ops")[1].endswith("(@ann@desk): thank you")
    assert len([each for each in await side.mailbox("ann") if each.kind is Kind.REPLY]) == 1


# ------------------------------------------------------------------------------------------------------ side by side


async def test_one_long_turn_holds_up_no_other_agent_and_its_own_mail_keeps_its_order(
    side: Side, rack: Gateway
) -> None:
    """10.10, #111587: one 25 minute turn expires others' mail."""
    rack.set(turns={"ops": [{"hold": "ops", "reply": "at last"}]})
    async with side.linked(rack):
        sent = [await side.send(f"{number}") for number in range(3)]
        await until(lambda: rack.turns("ops"))
        assert "heard" in await side.ask("you?", to="hermes@Rack")
        assert len(rack.turns("ops")) == 1
        rack.go("ops")
        for each in sent:
            await side.comes_to(each, State.ANSWERED)
    assert [text[-1] for text in rack.turns("ops")] == ["0", "1", "2"]


async def test_many_long_turns_leave_the_gateway_workers_for_everything_else(side: Side, rack: Gateway) -> None:
    """11.8: eight delivers fill the pool; drain, reply and look then wait for up to 1,320 s."""
    names = [f"bot-{number}" for number in range(12)]
    turns = {name: [{"hold": "all"}] for name in names}
    rack.set(profiles=[{"name": name} for name in ("default", "ops", *names)], turns=turns)
    async with side.linked(rack):
        sent = [await side.send("think", to=f"{name}@Rack") for name in names]
        await until(lambda: len(rack.turns()) == DELIVERS)
        id = rack.enqueue(f"ann@{HERE}", "hello?")
        await side.reply(await side.next("ann"), "yes")
        assert (await rack.answered(id))["reply"] == "yes"
        assert len(rack.turns()) == DELIVERS
        rack.go("all")
        for each in sent:
            await side.comes_to(each, State.ANSWERED)
    assert sorted(params["profile"] for params in rack.calls(DELIVER)) == sorted(names)


# ------------------------------------------------------------------------------------------------------- why it failed


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"code": 5092, "message": "no", "data": {"reason": "provider_quota_limit"}}, "provider_quota_limit"),
        ({"code": 5096, "message": "target_busy: ops", "data": {"reason": "target_busy"}}, "target_busy"),
        ({"code": 5096, "message": "target_busy: ops"}, "target_busy"),
        ({"code": 5093, "message": "turn timed out"}, "delivery_timeout"),
        ({"code": 5094, "message": "no", "data": {"reason": "runtime_offline"}}, "runtime_offline"),
        ({"code": 4091, "message": "message too long"}, "too_large"),
        ({"code": 4001, "message": "session not found"}, "runtime_offline"),
        ({"code": 5092, "message": "delivery turn failed: HTTP 429 slow down"}, "provider_rate_limit"),
        ({"code": -32000, "message": "boom"}, "unknown"),
    ],
)  # fmt: skip
async def test_every_refusal_reaches_the_sender_with_its_reason(
    side: Side, rack: Gateway, error: dict[str, object], reason: str
) -> None:
    """10.8, #113532: busy and time-outs reach the sender as unknown."""
    rack.set(turns={"ops": [{"error": error}]})
    async with side.linked(rack):
        assert await side.ask() == f"({reason})"
    assert len(rack.calls(DELIVER)) == 1  # and nothing is tried again: it may have been at work


async def test_an_agent_that_is_not_there_any_more_is_offline(side: Side, rack: Gateway) -> None:
    async with side.linked(rack):
        rack.set(profiles=[{"name": "default"}])
        assert await side.ask() == "(runtime_offline)"


async def test_a_name_is_never_taken_for_a_cause(tmp_path: Path, side: Side) -> None:
    """11.1: a target called ``quota-bot`` has not run out of it."""
    profiles = [{"name": "ops"}, {"name": "quota-bot", "display_name": "Rate Limit"}]
    error = {"code": 5092, "message": "delivery turn failed: quota-bot said no"}
    async with (
        a_gateway(tmp_path / "g", profiles=profiles, turns={"quota-bot": [{"error": error}]}) as gateway,
        side.linked(gateway),
    ):
        assert await side.ask(to="quota-bot@Rack") == "(unknown)"


async def test_a_gateway_that_lets_nobody_say_for_whom_gets_it_without(tmp_path: Path, side: Side) -> None:
    """10.20, #107598: all mail into gated gateways of generation 2 is refused."""
    error = {"code": 4095, "message": "sender fields are not accepted from a logged-in client"}
    faults = {DELIVER: [{"error": error}]}
    async with a_gateway(tmp_path / "g", faults=faults) as gateway, side.linked(gateway):
        assert "heard" in await side.ask("one")
        assert "heard" in await side.ask("two")
    named = ["from_profile" in params for params in gateway.calls(DELIVER)]
    assert named == [True, False, False]
