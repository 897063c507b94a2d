"""``message_agent`` on the bus: a request in somebody's mailbox, or an answer that says why not and nothing stored."""

from dataclasses import replace

import pytest

from angelia.bus.agents import put_agent
from angelia.bus.caller import ADMIN
from angelia.bus.message_agent import message_agent
from angelia.model.envelope import Intent, Lane
from angelia.model.errors import DiskFull, OutcomeUnknown
from angelia.storage.memory import MemoryStore
from tests.fakes.small_hub import LIMITS, SmallHub


async def tell(
    hub: SmallHub, target: object, message: object = "is the build green?", **more: object
) -> dict[str, object]:
    given = {"sender": "bob", "verified": False, **more}
    return await message_agent(hub.bus, target=target, message=message, **given)  # type: ignore[arg-type]


async def test_a_message_is_a_request_on_disk_from_whoever_was_proved(hub: SmallHub) -> None:
    answer = await tell(hub, "@ANN", "  is the build green?\n", verified=True)
    assert answer["status"] == "queued"
    assert answer["to"] == "@ann"
    (parcel,) = await hub.mailbox("ann")
    envelope = parcel.envelope
    assert (envelope.id, envelope.sender, envelope.verified) == (answer["delivery_id"], "bob", True)
    assert (envelope.text, envelope.intent, envelope.lane) == ("is the build green?", Intent.REQUEST, Lane.NORMAL)
    assert answer["queued_at"] == envelope.created_at // 1000


async def test_a_body_of_16_000_characters_goes_through_whatever_the_names_are(hub: SmallHub) -> None:
    long = "n" * 64
    await hub.know(long, "m" * 64)
    answer = await tell(hub, long, "🐝" * 16_000, sender="m" * 64)
    assert answer["status"] == "queued"
    assert (await hub.take(long))[0].envelope.text == "🐝" * 16_000


async def test_a_persons_message_goes_first(hub: SmallHub) -> None:
    await tell(hub, "ann", sender="human", verified=True)
    assert (await hub.mailbox("ann"))[0].envelope.lane is Lane.PERSON


async def test_the_answer_comes_by_itself_to_whoever_is_there_or_woken(hub: SmallHub) -> None:
    assert (await tell(hub, "ann"))["reply_delivery"] == "poll"
    reader = await hub.listen("bob")
    assert (await tell(hub, "ann"))["reply_delivery"] == "notification"
    await reader.close()
    assert (await tell(hub, "ann"))["reply_delivery"] == "poll"
    await put_agent(hub.bus, ADMIN, "bob", None, None, b'{"kind":"command"}')
    assert (await tell(hub, "ann"))["reply_delivery"] == "notification"


async def test_the_person_can_be_written_to(hub: SmallHub) -> None:
    assert (await tell(hub, "human"))["status"] == "queued"


@pytest.mark.parametrize(
    ("target", "message", "told"),
    [("ann", " ", "empty"), ("ann", "x" * 16_001, "16001"), ("bob", "x", "yourself"), ("nobody", "x", "no teammate")],
)
async def test_what_is_refused_is_stored_nowhere(hub: SmallHub, target: str, message: str, told: str) -> None:
    answer = await tell(hub, target, message)
    assert told in str(answer["error"])
    assert answer["reason"] in ("unknown", "too_large")
    assert not await hub.mailbox("ann")
    assert not await hub.mailbox("bob")


async def test_the_message_is_looked_at_before_the_target(hub: SmallHub) -> None:
    assert "message is empty" in str((await tell(hub, "", ""))["error"])


ROWS = [
    {"connection_id": "vps-1", "connection_label": "Rack 3", "profile": "ops", "title": "Ops Bot", "online": True},
    {"connection_id": "local", "profile": "default", "handle": "hermes"},
    {"connection_id": "vps-1", "profile": "night", "online": False},
]


async def push(hub: SmallHub, rows: object, name: str = "mac") -> None:
    now = hub.bus.clock.now()
    await hub.bus.store.write(lambda tx: hub.bus.remotes.push(tx, hub.bus.limits, name, rows, now))


async def test_somebody_on_another_connection_is_written_to_by_each_of_its_names(hub: SmallHub) -> None:
    await push(hub, ROWS)
    for target in ("ops", "ops-bot", "@OPS@vps-1"):
        answer = await tell(hub, target, "🐝" * 16_000)
        assert (answer["status"], answer["to"]) == ("queued", "@ops on Rack 3"), answer
    assert len(await hub.mailbox("ops@vps-1")) == 3
    answer = await tell(hub, "hermes@mac")
    assert answer["to"] == "@hermes on mac"
    assert (await tell(hub, "hermes", sender="hermes"))["to"] == "@hermes on mac"


async def test_who_is_offline_or_was_there_until_lately_is_refused_and_nothing_is_stored(hub: SmallHub) -> None:
    await push(hub, ROWS)
    await push(hub, ROWS[1:])
    for target in ("night", "night@vps-1", "ops", "ops@vps-1"):
        answer = await tell(hub, target)
        assert answer["reason"] == "runtime_offline", answer
        assert "offline" in str(answer["error"])
    assert not await hub.mailbox("night@vps-1")
    assert not await hub.mailbox("ops@vps-1")


async def test_every_form_that_is_offered_leads_to_somebody(hub: SmallHub) -> None:
    await push(hub, [*ROWS[:2], {"connection_id": "spare", "profile": "ops"}])
    answer = await tell(hub, "ops")
    assert answer["teammates"] == ["ops-bot", "ops@spare"]
    everyone = (await tell(hub, "nobody"))["teammates"]
    assert isinstance(everyone, list)
    assert {"ann", "cat", "human", "ops-bot", "ops@spare", "hermes@mac"} < set(everyone)
    for form in everyone:
        assert (await tell(hub, form))["status"] == "queued", form


async def test_a_full_mailbox_is_an_answer_with_its_reason() -> None:
    hub = await SmallHub.open(replace(LIMITS, mailbox_deliveries=1))
    await tell(hub, "ann")
    answer = await tell(hub, "ann")
    assert answer["reason"] == "mailbox_full"
    assert "limit is 1" in str(answer["error"])


async def test_a_repeat_under_its_id_is_one_message(hub: SmallHub) -> None:
    first, second = [await tell(hub, "ann", id="a" * 32) for _ in range(2)]
    assert first == second
    assert len(await hub.mailbox("ann")) == 1
    assert "error" in await tell(hub, "ann", "another text", id="a" * 32)


class Torn(MemoryStore):
    """A store whose commits fail from the moment on when it is told how."""

    fails: Exception | None = None

    def write(self, work, **how):  # type: ignore[no-untyped-def]
        future = super().write(work, **how)
        if self.fails:
            future = type(future)()
            future.set_exception(self.fails)
        return future


@pytest.mark.parametrize(
    ("fails", "reason", "told"),
    [(OutcomeUnknown("The commit failed."), "outcome_unknown", 32), (DiskFull("No space is left."), "unknown", 0)],
)
async def test_what_the_disk_did_is_told_and_never_that_there_is_no_such_teammate(
    fails: Exception, reason: str, told: int
) -> None:
    """11.3: a write that failed was told as "no teammate". Where nobody knows, the id to ask with is told, too."""
    store = Torn()
    hub = await SmallHub.open(store=store)
    store.fails = fails
    answer = await tell(hub, "ann")
    assert (answer["reason"], answer["error"]) == (reason, str(fails))
    assert len(str(answer.get("delivery_id", ""))) == told
