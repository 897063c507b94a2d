"""The life of all connections of a hub: made, dialled, kept up, given up; and what both sides know of it."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from angelia.bus.caller import OPEN
from angelia.bus.draft import Accepted
from angelia.links import hub_link, keeper, reception
from angelia.links.greeting import say_hello
from angelia.links.hello import CODE_SECONDS
from angelia.links.line import STEADY_MS
from angelia.links.line import Line as Standing
from angelia.links.port import Dialled, Trouble
from angelia.model.connection import Connection, Speaks
from angelia.model.delivery import State
from angelia.model.errors import BadName, BadRequest, NameTaken, NotAllowed, NotFound
from angelia.storage import memory
from angelia.storage.memory import MemoryStore
from tests.fakes.clock import FakeClock
from tests.links.neighbours import Line, Opened, Side, Stranger, until
from tests.links.town import NOBODY, Home, Town, a_town

FIRST = 0.05  # instead of a second
CONNECTED = "The hub there has a connection here already, {}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LAZY_SECONDS", 0.005)
    monkeypatch.setattr(hub_link, "GATHER_SECONDS", 0.001)
    monkeypatch.setattr(keeper, "FIRST_SECONDS", FIRST)
    monkeypatch.setattr(keeper, "GATHER_SECONDS", 0.01)
    monkeypatch.setattr(keeper, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(keeper, "BEHIND_SECONDS", 0.05)


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with a_town(tmp_path) as found:
        yield found


async def quiet(seconds: float = 0.2) -> None:
    """Time in which what must not happen could."""
    await asyncio.sleep(seconds)


# ------------------------------------------------------------------------------------------------------------ connect


async def test_a_connection_is_dialled_once_and_says_how_it_stands(town: Town) -> None:
    here, far = await town.home("home", "ann"), await town.home("garage", "bob")
    found = await here.connect("garage")
    assert (found.up, found.speaks, found.version, found.problem) == (True, Speaks.HUB, "1.2", None)
    assert found.connection.hub == far.side.id
    theirs = await until(lambda: far.keeper.conditions())
    assert [(each.connection.name, each.up) for each in theirs] == [("home", True)]
    sent = await here.side.send("ann", "bob@garage") if await _knows(here, "bob") else None
    assert sent is not None
    await until(lambda: here.is_forwarded(sent))
    assert len(here.dials) == 1


async def test_one_that_is_not_there_is_kept_and_says_why(town: Town) -> None:
    here = await town.home("home")
    found = await here.connect("garage")
    assert (found.up, found.kind, found.problem) == (False, "unreachable", NOBODY)
    assert found.advice
    await town.home("garage")
    await until(lambda: here.is_up("garage"))
    assert (await here.condition("garage")).problem is None


async def test_names_that_are_none_or_taken_are_refused_and_change_nothing(town: Town) -> None:
    here = await town.home("home")
    for name, error in (("a b", BadName), ("human", BadName), ("local", BadName), ("Home", NameTaken)):
        with pytest.raises(error):
            await here.connect(name)
    assert await here.keeper.conditions() == []
    with pytest.raises(NotFound):
        await here.keeper.disconnect("garage")


async def test_a_hub_that_the_settings_name_is_removed_from_there(town: Town) -> None:
    here = await town.home("home", fixed=(Connection(name="server", target="ws://garage", fixed=True),))
    await town.home("garage")
    await until(lambda: here.is_up("server"))
    found = await here.connect("other", target="ws://garage")
    assert (found.problem or "").startswith(CONNECTED.format("server"))
    assert found.advice == "Use that name, or remove it first, from the settings, where it stands."


async def test_who_connects_to_itself_is_told_so(town: Town) -> None:
    here = await town.home("home")
    found = await here.connect("mirror", target="ws://home")
    assert (found.up, found.problem) == (False, "That is this hub itself.")
    assert "its data folder is a copy of this one's" in (found.advice or "")
    await quiet()
    assert len(await here.keeper.conditions()) == 1


async def test_a_link_that_is_up_is_replaced_by_a_new_one(town: Town) -> None:
    here, _ = await town.home("home", "ann"), await town.home("garage", "bob", "dan")
    await here.connect("garage")
    await until(lambda: _knows(here, "dan"))
    [first] = town.open_lines()
    found = await here.connect("garage", accept=("bob",))
    assert found.up
    [second] = town.open_lines()
    assert second is not first
    await until(lambda: not _knows_now(here, "dan"))
    assert _knows_now(here, "bob")
    assert found.connection.accept == ("bob",)


async def test_many_connects_of_one_name_at_once_leave_one_that_can_be_removed(town: Town) -> None:
    here, _ = await town.home("home"), await town.home("garage")
    found = await asyncio.gather(*(here.connect("garage") for _ in range(5)))
    assert found[-1].connection.name == "garage"
    await until(lambda: here.is_up("garage"))
    await quiet()
    assert len(town.open_lines()) == 1
    await here.keeper.disconnect("garage")
    dials = len(here.dials)
    await quiet(FIRST * 6)
    assert len(here.dials) == dials
    assert town.open_lines() == []
    assert await here.keeper.conditions() == []


async def test_making_and_removing_at_once_come_one_after_the_other(town: Town) -> None:
    here, _ = await town.home("home"), await town.home("garage")
    for _ in range(10):
        await here.connect("garage")
        works = (here.keeper.disconnect("garage"), here.connect("garage"), here.keeper.disconnect("garage"))
        await asyncio.gather(*works, return_exceptions=True)
        assert await here.keeper.conditions() == []
        assert here.side.bus.neighbours.connections == {}
        assert town.open_lines() == []


async def test_a_hub_that_is_connected_already_gets_no_second_name(town: Town) -> None:
    here, _ = await town.home("home"), await town.home("garage")
    await here.connect("garage")
    found = await here.connect("shed", target="ws://garage")
    assert (found.up, (found.problem or "").partition(".")[0]) == (False, CONNECTED.format("garage"))
    assert "one data folder is a copy of the other" in (found.problem or "")
    assert "'angelia disconnect garage'" in (found.advice or "")
    assert await here.is_up("garage")


# --------------------------------------------------------------------------------------------------- both sides at once


async def test_of_two_that_dial_each_other_at_once_one_link_stays_and_both_agree(town: Town) -> None:
    for n in range(6):
        one, two = await town.home(f"one{n}", f"ann{n}"), await town.home(f"two{n}", f"bob{n}")
        await asyncio.gather(one.connect(f"two{n}"), two.connect(f"one{n}"))

        def stands(one: Home = one, two: Home = two, n: int = n) -> Any:
            return _both_up(one, f"two{n}", two, f"one{n}", town)

        await until(stands)
        await quiet(FIRST * 4)
        assert await stands(), n
        assert len(await one.keeper.conditions()) == len(await two.keeper.conditions()) == 1  # under the names given
        there = await one.side.send(f"ann{n}", f"bob{n}@two{n}") if await _knows(one, f"bob{n}") else None
        assert there is not None
        await until(lambda: one.is_forwarded(there))  # noqa: B023 - looked at before the next
        await one.stop()
        await two.stop()


async def come_in(here: Home, far: Home) -> str:
    """Dial ``here`` as ``far`` does, and prove it; why it is refused, or nothing where it is let in."""
    line = Line()
    here.town.lines.append((far, here, line))
    here.town.tasks.create_task(here.keeper.serve(OPEN, Opened(line.ends[1])))
    visitor = Stranger(line.ends[0])
    here.town.tasks.create_task(visitor.run())
    dialled = Dialled(line.ends[0], Speaks.HUB, key_file=str(here.key_file))
    connection = Connection(name="home", target="ws://home")
    try:
        await say_hello(visitor.channel, far.side.id, "garage", connection, dialled, None, lambda _: None)
    except Trouble as trouble:
        return trouble.problem
    return ""


@pytest.mark.parametrize("smaller", [True, False])
async def test_a_link_that_this_side_dialled_stays_where_its_id_is_the_smaller_one(town: Town, smaller: bool) -> None:
    store = MemoryStore()
    store.instance = ("0" if smaller else "f") * 32
    here, far = await town.home("home", store=store), await town.home("garage")
    await here.connect("garage")
    [first] = town.open_lines()
    refused = await come_in(here, far)
    assert refused == ("The other side's own link to this hub is up." if smaller else "")
    assert first.dead.is_set() is not smaller
    assert await here.is_up("garage")
    assert len(await here.keeper.conditions()) == 1


async def test_a_newer_line_from_outside_takes_the_place_of_the_one_before(town: Town) -> None:
    """Whoever dials anew has lost the old one, and knows it first."""
    here, far = await town.home("home"), await town.home("garage")
    for _ in range(3):
        assert await come_in(here, far) == ""
        await until(lambda: here.is_up("garage"))
        assert len(town.open_lines()) == 1
    assert len(await here.keeper.conditions()) == 1


# ------------------------------------------------------------------------------------------------------------- pauses


async def held(home: Home, seconds: float) -> None:
    """Its links have held for so long."""
    assert isinstance(home.side.bus.clock, FakeClock)
    await home.side.bus.clock.advance(seconds)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is waited between two tries; the time itself is made to pass at once."""
    monkeypatch.setattr(keeper, "FIRST_SECONDS", 1.0)
    monkeypatch.setattr(random, "uniform", lambda least, most: most)
    found: list[float] = []

    async def pass_at_once(line: Standing, seconds: float) -> None:
        found.append(seconds)
        clock = line.bus.clock
        assert isinstance(clock, FakeClock)
        await clock.advance(seconds)
        if len(found) > 200:
            await asyncio.Event().wait()

    monkeypatch.setattr(Standing, "wait_for_wake", pass_at_once)
    return found


async def test_pauses_grow_with_the_time_that_it_is_down_and_begin_anew(town: Town, pauses: list[float]) -> None:
    here = await town.home("home")
    await here.connect("garage")
    await until(lambda: len(pauses) > 100)
    assert pauses[0] == 1.0
    assert pauses[:50] == sorted(pauses[:50])
    assert max(pauses) == 60.0
    assert 5 < sum(pause < 60 for pause in pauses) < 60  # neither at once, nor for hours
    await town.home("garage")
    await until(lambda: here.is_up("garage"))
    await held(here, STEADY_MS / 1000)
    before = len(pauses)
    town.homes["garage"].out = True
    for line in town.open_lines():
        line.cut()
    await until(lambda: len(pauses) > before + 1)
    assert pauses[before] == 1.0


async def test_a_link_that_breaks_at_once_is_the_same_trouble_still(town: Town, pauses: list[float]) -> None:
    """Else one that a far side always refuses goes up and down each second for ever."""
    here = await town.home("home")
    await here.connect("garage")
    await until(lambda: len(pauses) > 60)
    await town.home("garage")
    await until(lambda: here.is_up("garage"))
    before = len(pauses)
    town.homes["garage"].out = True
    for line in town.open_lines():
        line.cut()
    await until(lambda: len(pauses) > before)
    assert pauses[before] > 10


async def test_pauses_are_never_at_the_beat_of_others(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    found: set[float] = set()

    async def note(line: Standing, seconds: float) -> None:
        found.add(seconds)
        await asyncio.sleep(0.001)

    monkeypatch.setattr(Standing, "wait_for_wake", note)
    here = await town.home("home")
    await here.connect("garage")
    await until(lambda: len(found) > 10)
    assert all(FIRST / 2 <= pause <= FIRST for pause in found)


async def test_trouble_that_lasts_is_tried_again_late(town: Town, pauses: list[float]) -> None:
    town.trusting = False
    here, _ = await town.home("home"), await town.home("garage")
    found = await here.connect("garage")
    assert found.kind == "refused"
    await until(lambda: pauses)
    assert pauses[0] == 60.0


async def test_who_slept_dials_at_once(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "FIRST_SECONDS", 60.0)
    here = await town.home("home")
    await here.connect("garage")
    await town.home("garage")
    assert len(here.dials) == 1
    await _sleep(here, 3)
    await quiet(0.1)
    assert len(here.dials) == 1  # that was no sleep
    await _sleep(here, 30)
    await until(lambda: here.is_up("garage"))


async def test_a_clock_that_was_set_back_hides_no_sleep(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper, "FIRST_SECONDS", 60.0)
    here = await town.home("home")
    await here.connect("garage")
    await town.home("garage")
    await _sleep(here, -3600)
    await quiet(0.1)
    await _sleep(here, 30)
    await until(lambda: here.is_up("garage"))


# ---------------------------------------------------------------------------------------------------------- disconnect


async def test_what_is_removed_tells_the_senders_of_what_waited(town: Town) -> None:
    here, far = await town.home("home", "ann"), await town.home("garage", "bob")
    await here.connect("garage")
    assert await _knows(here, "bob")
    await far.stop()
    await until(lambda: _is_down(here, "garage"))
    sent = [await here.side.send("ann", "bob", "hi", intent="request") for _ in range(150)]
    assert (await here.condition("garage")).waiting == 150
    await here.keeper.disconnect("GARAGE")
    assert {await here.side.state(each) for each in sent} == {State.FAILED}
    notices = await here.side.notices("ann")
    assert len(notices) == 150
    assert "The connection to it was removed." in (notices[0].text or "")
    assert await here.keeper.conditions() == []
    assert not _knows_now(here, "bob")


async def test_who_is_removed_while_it_is_up_is_cut_off(town: Town) -> None:
    here, far = await town.home("home", "ann"), await town.home("garage", "bob")
    await here.connect("garage")
    town.trusting = False
    await here.keeper.disconnect("garage")
    assert town.open_lines() == []
    await until(lambda: _is_down(far, "home"))
    await far.keeper.disconnect("home")
    assert await far.keeper.conditions() == []


async def test_a_connection_of_the_settings_stays_as_it_stands_there(town: Town) -> None:
    fixed = Connection(name="garage", target="ws://garage", fixed=True)
    store = MemoryStore()
    here = await town.home("home", store=store, fixed=(fixed,))
    await town.home("garage")
    await until(lambda: here.is_up("garage"))
    for refused in (here.connect("garage"), here.keeper.disconnect("garage"), here.connect("garage", "ABCD-EFGH-JKLM")):
        with pytest.raises(BadRequest, match="settings"):
            await refused
    assert await here.is_up("garage")
    await here.stop()
    here = town.place(await Side.make("home", store=store)).start()  # it stands there no more
    await quiet(0.05)
    assert await here.keeper.conditions() == []


# ------------------------------------------------------------------------------------------------------------- pairing


async def test_a_code_pairs_and_both_link_again_by_themselves_after_a_restart(town: Town) -> None:
    town.trusting = False
    stores = MemoryStore(), MemoryStore()
    here, far = await town.home("home", "ann", store=stores[0]), await town.home("garage", "bob", store=stores[1])
    assert (await here.connect("garage")).kind == "refused"
    await here.keeper.disconnect("garage")
    code, seconds = far.keeper.offer()
    assert seconds == CODE_SECONDS
    assert (await here.connect("garage", code)).up
    assert await _knows(here, "bob")
    keys = {home.side.bus.neighbours.require(name).key for home, name in ((here, "garage"), (far, "home"))}
    assert len(keys) == 1
    await here.stop()
    await far.stop()
    here = town.place(await Side.make("home", store=stores[0]))
    far = town.place(await Side.make("garage", store=stores[1]))
    assert _knows_now(here, "bob")  # before anybody has told
    far.start()
    here.start()
    await until(lambda: here.is_up("garage"))
    await until(lambda: far.is_up("home"))


async def test_a_wrong_code_leaves_nothing_behind(town: Town) -> None:
    town.trusting = False
    here, far = await town.home("home"), await town.home("garage")
    far.keeper.offer()
    for name in ("garage", "nowhere"):
        with pytest.raises(NotAllowed, match="Nothing was kept"):
            await here.connect(name, "ABCD-EFGH-JKLM")
    assert await here.keeper.conditions() == []
    assert await far.keeper.conditions() == []
    assert here.side.bus.neighbours.connections == {}


async def test_a_wrong_code_costs_a_connection_that_is_up_nothing(town: Town) -> None:
    here, far = await town.home("home"), await town.home("garage")
    await here.connect("garage")
    far.keeper.offer()
    with pytest.raises(NotAllowed):
        await here.connect("garage", "ABCD-EFGH-JKLM")
    assert await here.is_up("garage")
    assert len(town.open_lines()) == 1


async def test_a_connection_that_only_the_other_side_dialled_keeps_its_key_when_it_gets_a_target(town: Town) -> None:
    town.trusting = False
    here, far = await town.home("home"), await town.home("garage")
    code, _ = far.keeper.offer()
    await here.connect("garage", code)
    await until(lambda: far.is_up("home"))
    await far.connect("home")
    await until(lambda: _both_up(here, "garage", far, "home", town))


async def test_who_does_not_prove_itself_in_time_is_sent_away(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "PROVE_SECONDS", 0.1)
    here = await town.home("home")
    line = Line()
    await asyncio.wait_for(here.keeper.serve(Any, Opened(line.ends[1])), 3)  # type: ignore[arg-type]
    assert line.dead.is_set()


async def test_a_hub_that_comes_in_gets_its_own_name_where_that_is_free(town: Town) -> None:
    far = await town.home("garage")
    for n in range(3):
        home = town.place(await Side.make("home" if n != 2 else "garage"))
        home.start()
        town.homes["garage"] = far
        assert (await home.connect("far", target="ws://garage")).up
    names = sorted(each.connection.name for each in await far.keeper.conditions())
    assert names == ["garage-2", "home", "home-2"]


# --------------------------------------------------------------------------------------------------------------- life


async def test_a_roster_that_changes_is_known_on_the_other_side_within_a_second(town: Town) -> None:
    here, far = await town.home("home"), await town.home("garage")
    await here.connect("garage")
    await far.side.know("zoe", member=True)
    await until(lambda: _knows_now(here, "zoe"), 1.0)


async def test_a_line_that_breaks_is_dialled_again_and_mail_goes_on(town: Town) -> None:
    here, far = await town.home("home", "ann"), await town.home("garage", "bob")
    await here.connect("garage")
    assert await _knows(here, "bob")
    for n in range(5):
        for line in town.open_lines():
            line.cut()
        await here.side.send("ann", "bob", str(n))
        await until(lambda: here.is_up("garage"))
    await until(lambda: _has(far, "bob", 5))
    assert await far.side.texts("bob") == ["0", "1", "2", "3", "4"]


async def test_a_fault_in_one_link_ends_neither_it_for_good_nor_others(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    here = await town.home("home")
    for name in ("garage", "shed"):
        await town.home(name)
        await here.connect(name)
    broken = True

    def fails(connection: Connection) -> None:
        if broken and connection.name == "garage":
            raise LookupError("a fault of ours")

    here.before_dial = fails
    for line in town.open_lines():
        line.cut()
    await until(lambda: _has_problem(here, "garage", "Something broke inside this hub; its log says what."))
    await until(lambda: here.is_up("shed"))
    broken = False
    await until(lambda: here.is_up("garage"))
    assert "a fault of ours" in caplog.text


async def test_a_fault_in_a_line_from_outside_costs_only_that_line(
    town: Town, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here, far = await town.home("home"), await town.home("garage")

    async def broken(self: hub_link.HubLink, channel: object) -> None:
        raise LookupError("a fault of ours")

    with monkeypatch.context() as patch:
        patch.setattr(hub_link.HubLink, "run", broken)
        await here.connect("garage")
        await until(lambda: _has_problem(far, "home", "Something broke inside this hub; its log says what."))
    await until(lambda: here.is_up("garage"))
    await until(lambda: far.is_up("home"))
    assert "a fault of ours" in caplog.text


async def test_troubles_are_told_once_for_each_change(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "angelia.links")
    here = await town.home("home")
    await here.connect("garage")
    await until(lambda: len(here.dials) > 4)
    assert caplog.text.count(NOBODY) == 1


async def test_the_stop_is_clean(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with a_town(tmp_path) as town:
        here, far = await town.home("home", "ann"), await town.home("garage", "bob")
        await here.connect("garage")
        await here.connect("nowhere")
        assert await _knows(here, "bob")
        for line in town.open_lines():
            line.deaf = True  # what is sent from now on is on its way for ever
        sent = [await here.side.send("ann", "bob", str(n)) for n in range(5)]
        await until(lambda: _taken(here, sent))
        await here.stop()
        await here.side.commit()
        assert {await here.side.state(each) for each in sent} == {State.QUEUED}
        assert not await here.is_up("garage")
        assert here.side.bus.neighbours.up == frozenset()
        await far.stop()
    assert asyncio.all_tasks() == before
    assert town.open_lines() == []


async def test_a_keeper_ends_also_where_its_line_breaks_at_that_instant(tmp_path: Path) -> None:
    async with a_town(tmp_path) as town:
        far = await town.home("garage")
        for steps in range(40):
            here = await town.home(f"home{steps}")
            await here.connect("garage")
            for line in town.lines_of(here):
                line.cut()
            for _ in range(steps):
                await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await here.stop()
        await far.stop()


async def test_the_end_of_a_link_that_was_let_in_gives_back_too(tmp_path: Path) -> None:
    async with a_town(tmp_path) as town:
        here, far = await town.home("home", "ann"), await town.home("garage", "bob")
        await here.connect("garage")
        assert await _knows(far, "ann")
        for line in town.open_lines():
            line.deaf = True
        sent = await far.side.send("bob", "ann", "hi")
        await until(lambda: _taken(far, [sent]))
        await here.stop()
        await until(lambda: _is_queued(far, sent))


# ------------------------------------------------------------------------------------------------------------- looking


def _knows_now(home: Home, handle: str) -> bool:
    return any(known.row.handle == handle for known in home.side.bus.neighbours.everyone())


async def _knows(home: Home, handle: str) -> bool:
    return bool(await until(lambda: _knows_now(home, handle)))


async def _both_up(one: Home, two_name: str, two: Home, one_name: str, town: Town) -> bool:
    both = await one.is_up(two_name) and await two.is_up(one_name)
    open_lines = [line for line in town.lines_of(one) if line in town.lines_of(two)]
    return both and len(open_lines) == 1


async def _is_down(home: Home, name: str) -> bool:
    return not await home.is_up(name)


async def _has_problem(home: Home, name: str, problem: str) -> bool:
    return (await home.condition(name)).problem == problem


async def _has(home: Home, agent: str, count: int) -> bool:
    return len(await home.side.came(agent)) >= count


async def _taken(home: Home, sent: list[Any]) -> bool:
    return State.LEASED in {await home.side.state(each) for each in sent}


async def _is_queued(home: Home, sent: Any) -> bool:
    return await home.side.state(sent) is State.QUEUED


async def _sleep(home: Home, seconds: float) -> None:
    """The machine sleeps: the clock on the wall goes on, the other does not."""
    clock = home.side.clock
    before = clock.now
    clock.now = lambda: before() + int(seconds * 1000)  # type: ignore[method-assign]
    await asyncio.sleep(0)


async def test_the_third_line_of_three_hubs_takes_the_name_that_is_known_by_the_other_way(town: Town) -> None:
    """Each pair is linked under its own names, though each third hub is known already by way of the second."""
    home, garage, shed = [await town.home(name, f"of_{name}") for name in ("home", "garage", "shed")]
    assert (await home.connect("garage")).up
    assert (await garage.connect("shed")).up
    neighbours = home.side.bus.neighbours
    await until(lambda: neighbours.of_a_way("shed") is not None)
    by_way = neighbours.behind("shed")
    assert by_way is not None
    assert by_way.link == "garage"
    assert (await home.connect("shed")).up
    direct = neighbours.behind("shed")
    assert direct is not None
    assert (direct.link, direct.hub) == ("shed", by_way.hub)
    other = neighbours.behind("shed-garage")
    assert other is not None
    assert (other.link, other.hub) == ("garage", by_way.hub)
    assert sorted(each.connection.name for each in await shed.keeper.conditions()) == ["garage", "home"]


async def test_a_name_that_means_another_hub_is_not_given_to_this_one(town: Town) -> None:
    home, garage, _ = [await town.home(name, f"of_{name}") for name in ("home", "garage", "shed")]
    assert (await home.connect("garage")).up
    assert (await garage.connect("shed")).up
    await until(lambda: home.side.bus.neighbours.of_a_way("shed") is not None)
    await town.home("stable", "of_stable")
    found = await home.keeper.connect(Connection(name="shed", target="ws://stable"), None)
    assert not found.up
    assert "is the name of another hub here" in (found.problem or "")
    behind = home.side.bus.neighbours.behind("shed")
    assert behind is not None
    assert behind.link == "garage"


async def test_a_code_gives_nobody_the_place_of_a_hub_that_is_paired(town: Town) -> None:
    """Whoever has a code may be anybody; the key that two hubs share is replaced only once its owner has removed it."""
    town.trusting = False
    home, garage = await town.home("home"), await town.home("garage")
    code, _ = garage.keeper.offer()
    assert (await home.connect("garage", code)).up
    kept = garage.side.bus.neighbours.require("home").key
    code, _ = garage.keeper.offer()
    with pytest.raises(NotAllowed, match="angelia disconnect home"):
        await home.connect("garage", code)
    assert garage.side.bus.neighbours.require("home").key == kept
    await garage.keeper.disconnect("home")
    code, _ = garage.keeper.offer()
    assert (await home.connect("garage", code)).up


async def test_two_machines_that_are_one_hub_are_told_of(town: Town) -> None:
    """A data folder that was copied: both come in as the same hub, and push each other off the line."""
    side = await Side.make("garage")
    line = Standing(side.bus, Connection(name="home", hub="a" * 32))
    for _ in range(3):
        line.replaced()
    assert (await line.condition()).warning is None
    line.replaced()
    warning = (await line.condition()).warning
    assert warning is not None
    assert "was a data folder copied?" in warning
    assert isinstance(side.bus.clock, FakeClock)
    await side.bus.clock.advance(61)
    assert (await line.condition()).warning is None


async def test_what_no_signal_told_of_crosses_at_the_next_look(town: Town) -> None:
    home, garage = await town.home("home", "ann"), await town.home("garage", "bob")
    await home.connect("garage")
    assert await _knows(home, "bob")
    sent = await home.side.send("ann", "bob", "1")
    await until(lambda: _has(garage, "bob", 1))
    signals = garage.side.bus.signals
    wake, signals.wake = signals.wake, lambda key: None  # type: ignore[method-assign]  # lost, by a fault of ours
    await garage.side.ack(await garage.side.take_one("bob"))
    await quiet()
    assert await home.side.state(sent) is State.FORWARDED
    signals.wake = wake  # type: ignore[method-assign]
    await until(lambda: _is(home, sent, State.DELIVERED))


@pytest.mark.parametrize("how", ["connected again", "let in", "in the settings"])
async def test_a_hub_that_was_put_back_gets_again_what_it_forgot_however_the_two_meet(town: Town, how: str) -> None:
    stores = MemoryStore(), MemoryStore(), MemoryStore()
    fixed = (Connection(name="garage", target="ws://garage", fixed=True),) if how == "in the settings" else ()
    here = await town.home("home", "ann", store=stores[0], fixed=fixed)
    far = await town.home("garage", "bob", store=stores[1])
    if not fixed:
        await (far.connect("home") if how == "let in" else here.connect("garage"))
    assert await _knows(here, "bob")
    sent = await here.side.send("ann", "bob", "1")
    await until(lambda: _is(here, sent, State.FORWARDED))
    await far.stop()
    stores[2].instance = stores[1].instance  # the same hub, from before all that, and so of another epoch
    if how == "connected again":
        assert not (await here.connect("garage")).up
    if fixed:
        await here.stop()
        here = town.place(await Side.make("home", store=stores[0]), fixed).start()
    far = town.place(await Side.make("garage", "bob", store=stores[2])).start()
    if how == "let in":
        await far.connect("home")
    await until(lambda: _has(far, "bob", 1))


async def _is(home: Home, sent: Accepted, state: State) -> bool:
    return await home.side.state(sent) is state
