"""Rosters that relays push: whose rows they are, how long they count, and whom an address means."""

import time

import pytest

from angelia.bus.deliver import attributed
from angelia.bus.desktops import make_token
from angelia.bus.ports import Tx
from angelia.bus.remotes import ANONYMOUS, Pushed, Remote, check_scope
from angelia.model.address import Address
from angelia.model.delivery import State
from angelia.model.errors import AmbiguousName, BadRequest, RateLimited, RuntimeOffline, TooLarge, UnknownAgent
from angelia.model.limits import Limits
from angelia.protocol.bot_relay_targets import Ambiguous
from tests.fakes.clock import FakeClock
from tests.fakes.small_hub import SmallHub
from tests.fakes.two_hubs import LinkedHub

OPS: dict[str, object] = {"profile": "ops", "connection_id": "vps-1", "title": "Ops Bot"}
MAIA: dict[str, object] = {"profile": "default", "connection_id": "local", "title": "Maia"}
DAY = 24 * 3600


async def push(hub: SmallHub, *agents: object, name: str = ANONYMOUS) -> Pushed:
    bus = hub.bus

    def unit(tx: Tx) -> Pushed:
        return bus.remotes.push(tx, bus.limits, name, list(agents), hub.clock.now())

    return await bus.store.write(unit)


def find(hub: SmallHub, target: str) -> Remote | Ambiguous | None:
    return hub.bus.remotes.find(target, hub.bus.directory.agents, hub.clock.now(), hub.bus.limits)


def shown(hub: SmallHub) -> list[tuple[str, str, bool | None]]:
    rows = hub.bus.remotes.rows(hub.clock.now(), hub.bus.limits)
    return [(row.profile, row.connection_id, row.online) for row in rows]


# --------------------------------------------------------------------------------------------------------------- pushes


async def test_bad_rows_are_named_and_cost_the_others_nothing(hub: SmallHub) -> None:
    pushed = await push(hub, OPS, {"profile": "", "connection_id": "x"}, 7, OPS, MAIA)
    assert pushed.count == 2
    assert [row for row, _ in pushed.rejected] == [1, 2, 3]
    assert shown(hub) == [("default", "desktop", None), ("ops", "vps-1", None)]


async def test_a_push_replaces_its_own_rows_and_no_others(hub: SmallHub) -> None:
    await push(hub, OPS, name="mac")
    await push(hub, {**OPS, "connection_id": "vps-9"}, name="pc")
    await push(hub, {**OPS, "profile": "dev"}, name="MAC")
    assert shown(hub) == [("dev", "vps-1", None), ("ops", "vps-9", None)]
    await push(hub, name="mac")
    assert shown(hub) == [("ops", "vps-9", None)]


async def test_a_restart_forgets_none(hub: SmallHub) -> None:
    await push(hub, OPS, MAIA)
    await push(hub, MAIA, name="pc")
    before = shown(hub)
    await hub.restart()
    assert shown(hub) == before
    assert hub.bus.remotes.of_mail("pc", "hermes@pc") is not None


async def test_what_was_not_stored_is_not_there(hub: SmallHub) -> None:
    def unit(tx: Tx) -> None:
        hub.bus.remotes.push(tx, hub.bus.limits, ANONYMOUS, [OPS], hub.clock.now())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await hub.bus.store.write(unit)
    assert shown(hub) == []


async def test_a_note_that_cannot_be_read_is_as_if_nothing_had_been_pushed(hub: SmallHub) -> None:
    await push(hub, OPS, name="mac")
    for number, broken in enumerate((b"{", b"[]", b'{"name":"../x","rows":[]}')):
        await hub.bus.store.write(lambda tx, n=number, b=broken: tx.put_note(f"roster:{n}", b, hub.clock.now()))  # type: ignore[misc]
    await hub.restart()
    assert shown(hub) == [("ops", "vps-1", None)]


async def test_bounds() -> None:
    hub = await SmallHub.open(Limits(roster_rows=2, rosters=2))
    pushed = await push(hub, OPS, MAIA, {**OPS, "profile": "dev"})
    assert (pushed.count, [row for row, _ in pushed.rejected]) == (2, [2])
    await push(hub, OPS, name="mac")
    with pytest.raises(RateLimited):
        await push(hub, OPS, name="pc")
    await push(hub, name="mac")
    await hub.clock.advance(DAY + 1)
    await push(hub, OPS, name="pc")
    assert await hub.bus.store.read(lambda view: [note.name for note in view.notes("roster:")]) == ["roster:pc"]


@pytest.mark.parametrize("bad", ["a b", "x" * 65, 7, ["mac"], "local", "LOCAL", "a/b", "-x"])
def test_what_is_no_name_is_no_desktop(bad: object) -> None:
    with pytest.raises(BadRequest):
        check_scope(bad)
    assert check_scope("Mac-1") == "Mac-1"
    assert check_scope(None) == check_scope("") == ANONYMOUS


# ------------------------------------------------------------------------------------------------------------- liveness


async def test_whether_it_is_there_is_told_unknown_and_gone_by_the_age_of_the_push(hub: SmallHub) -> None:
    on, off = {**OPS, "online": True}, {**OPS, "profile": "dev", "handle": "dev", "online": False}
    await push(hub, on, off, MAIA)
    assert [online for *_, online in shown(hub)] == [None, False, True]
    await hub.clock.advance(600)
    assert [online for *_, online in shown(hub)] == [None, False, True]
    await hub.clock.advance(1)
    assert [online for *_, online in shown(hub)] == [None, None, None]
    await hub.clock.advance(DAY - 601)
    assert len(shown(hub)) == 3
    await hub.clock.advance(1)
    assert shown(hub) == []


async def test_only_who_is_known_to_be_offline_is_refused(hub: SmallHub) -> None:
    await push(hub, {**OPS, "online": False}, {**OPS, "profile": "gone"})
    await push(hub, {**OPS, "online": False})
    for to in ("ops@vps-1", "ops", "gone@vps-1"):
        with pytest.raises(RuntimeOffline):
            await hub.send("bob", to)
    assert await hub.mailbox("ops@vps-1", *State) == []
    await hub.clock.advance(601)
    await hub.send("bob", "ops@vps-1")  # nobody knows any more: it is queued
    with pytest.raises(UnknownAgent):
        await hub.send("bob", "gone@vps-1")


# ------------------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("to", "address"),
    [
        ("ops", "ops@vps-1"),
        ("OPS", "ops@vps-1"),
        ("ops-bot", "ops@vps-1"),
        ("ops@VPS-1", "ops@vps-1"),
        ("default@desktop", "hermes@desktop"),
        ("Hermes@Desktop", "hermes@desktop"),
        ("maia", "hermes@desktop"),
    ],
)
async def test_every_form_leads_to_one_mailbox(hub: SmallHub, to: str, address: str) -> None:
    await push(hub, OPS, MAIA)
    accepted = await hub.send("bob", to)
    (row,) = accepted.deliveries
    assert (row.to, row.mailbox, row.connection, accepted.envelope.to) == (address, address, ANONYMOUS, address)
    assert row.expires_at - row.accepted_at == 900_000


async def test_somebody_here_goes_before_somebody_elsewhere(hub: SmallHub) -> None:
    await push(hub, {**OPS, "profile": "ann"}, MAIA)
    for to in ("ann", "hermes", "ann@local"):
        assert (await hub.send("bob", to)).deliveries[0].connection is None
    assert (await hub.send("bob", "ann@vps-1")).deliveries[0].connection == ANONYMOUS
    with pytest.raises(UnknownAgent):
        await hub.send("bob", "default")  # a reserved name, and never a remote's


async def test_a_name_of_several_is_refused_with_the_forms_that_are_not(hub: SmallHub) -> None:
    await push(hub, OPS, {**OPS, "connection_id": "vps-2"})
    with pytest.raises(AmbiguousName) as refused:
        await hub.send("bob", "ops")
    assert refused.value.extra["suggestions"] == ["ops@vps-1", "ops@vps-2"]
    assert (await hub.send("bob", "ops@vps-2")).deliveries[0].to == "ops@vps-2"


async def test_an_id_that_two_desktops_use_is_shown_behind_their_names(hub: SmallHub) -> None:
    await push(hub, OPS, MAIA, name="mac")
    await hub.send("bob", "ops@vps-1", "before")
    await push(hub, OPS, {**OPS, "profile": "dev"}, name="pc")
    with pytest.raises(AmbiguousName) as refused:
        await hub.send("bob", "ops@vps-1")
    assert refused.value.extra["suggestions"] == ["ops@mac-vps-1", "ops@pc-vps-1"]
    assert (await hub.send("bob", "ops@pc-vps-1")).deliveries[0].connection == "pc"
    assert (await hub.send("bob", "dev@vps-1")).deliveries[0].to == "dev@pc-vps-1"  # only one of them has a dev
    assert (await hub.send("bob", "hermes@mac")).deliveries[0].connection == "mac"
    remotes = hub.bus.remotes
    for scope, to in (("mac", "ops@vps-1"), ("mac", "ops@mac-vps-1"), ("pc", "ops@pc-vps-1")):
        row = remotes.of_mail(scope, to)
        assert row is not None
        assert (row.connection_id, row.profile) == ("vps-1", "ops")
    assert remotes.of_mail("pc", "hermes@mac") is None
    now, limits = hub.clock.now(), hub.bus.limits
    assert remotes.shown("pc", "vps-1", now, limits) == "pc-vps-1"
    assert remotes.shown("pc", "local", now, limits) == "pc"
    assert remotes.shown("pc", "vps-7", now, limits) == "vps-7"


async def test_two_of_one_handle_on_one_connection_are_told_apart_by_profile(hub: SmallHub) -> None:
    await push(hub, {**OPS, "handle": "bot", "title": ""}, {**OPS, "profile": "dev", "handle": "bot", "title": ""})
    with pytest.raises(AmbiguousName) as refused:
        await hub.send("bob", "bot@vps-1")
    assert refused.value.extra["suggestions"] == ["dev@vps-1", "ops@vps-1"]  # also where the target names a connection
    assert (await hub.send("bob", "dev@vps-1")).deliveries[0].to == "dev@vps-1"
    assert isinstance(find(hub, "bot"), Ambiguous)


async def test_mail_to_a_row_that_was_dropped_still_finds_its_way(hub: SmallHub) -> None:
    await push(hub, OPS)
    await push(hub, MAIA)
    await push(hub, MAIA)
    row = hub.bus.remotes.of_mail(ANONYMOUS, "ops@vps-1")
    assert row is not None
    assert row.profile == "ops"


async def test_mail_to_an_agent_that_has_another_handle_by_now_still_finds_its_way(hub: SmallHub) -> None:
    """A Desktop that shows agents under their titles gives one another handle when its title changes."""
    await push(hub, {**MAIA, "handle": "maia"})
    for title in ("Nova", "Ada"):
        await push(hub, {**MAIA, "handle": title.lower(), "title": title})
    row = hub.bus.remotes.of_mail(ANONYMOUS, "maia@desktop")
    assert row is not None
    assert (row.connection_id, row.profile) == ("local", "default")
    assert find(hub, "maia@desktop") is None


async def test_a_large_roster_is_looked_through_once_and_not_once_for_each_row() -> None:
    """10,000 rows held up every send for 14 s."""
    hub = await SmallHub.open(Limits(roster_rows=10_000))
    await push(hub, *({"profile": f"p{number}", "connection_id": "vps-1"} for number in range(10_000)))
    begun = time.thread_time()
    assert isinstance(find(hub, "p9999@vps-1"), Remote)
    assert time.thread_time() - begun < 1


async def test_what_hermes_would_not_take_is_refused_at_the_send(hub: SmallHub) -> None:
    """16200 cap vs prefix: a body of 16,000 characters goes through, one more does not."""
    await push(hub, OPS)
    await hub.send("bob", "ops@vps-1", "é" * 16_000)
    with pytest.raises(TooLarge):
        await hub.send("bob", "ops@vps-1", "x" * 16_001)
    with pytest.raises(TooLarge):
        await hub.send("bob", "ops@vps-1", "x" * 15_990, body=b'{"and":"more"}')


def test_the_carrier_is_no_part_of_a_name() -> None:
    assert str(Address("ops", "vps-1", carrier="desktop")) == "ops@vps-1"
    assert Address("ops", "VPS-1", carrier="desktop").mailbox == "ops@vps-1"


# ------------------------------------------------------------------------------------------------------ beside links

RACK = "a" * 32


def told(handle: str, **more: object) -> dict[str, object]:
    """A row as the rack tells of its own."""
    return {"handle": handle, "hub": RACK, "name": "rack", "way": [RACK], **more}


@pytest.fixture
async def linked() -> LinkedHub:
    """A hub with a link to a rack, where ops and dev are."""
    hub = await LinkedHub.start("lap", 1, FakeClock(), "ann", "bob")
    await hub.connect("rack", RACK)
    rows = [
        {"handle": name, "hub": RACK, "name": "rack", "way": [RACK], "title": f"{name} bot"} for name in ("ops", "dev")
    ]
    await hub.learn("rack", rows)
    return hub


@pytest.mark.parametrize("to", ["ops", "OPS", "ops@rack", "Ops@RACK", "ops-bot", "opsbot@rack"])
async def test_every_form_of_one_behind_a_link_leads_to_one_mailbox(linked: LinkedHub, to: str) -> None:
    (row,) = (await linked.send("bob", to)).deliveries
    assert (row.to, row.mailbox, row.connection) == ("ops@rack", "ops@rack", "rack")


async def test_one_name_behind_a_link_and_at_a_desktop_is_refused_with_both_forms(linked: LinkedHub) -> None:
    await push(linked, OPS, name="mac")
    with pytest.raises(AmbiguousName) as refused:
        await linked.send("bob", "ops")
    assert refused.value.extra["suggestions"] == ["ops@rack", "ops@vps-1"]
    carriers = {form: (await linked.send("bob", form)).deliveries[0].connection for form in ("ops@rack", "ops@vps-1")}
    assert carriers == {"ops@rack": "rack", "ops@vps-1": "mac"}


async def test_a_desktop_never_takes_the_name_of_a_link(linked: LinkedHub) -> None:
    """Not for its connections, nor for one behind a link."""
    await linked.learn("rack", [{"handle": "zed", "hub": "c" * 32, "name": "attic", "way": ["c" * 32, RACK]}])
    await push(linked, {**OPS, "connection_id": "RACK"}, {**OPS, "connection_id": "attic"}, name="mac")
    assert {f"ops@{name}" for name in ("mac-RACK", "mac-attic")} < set(linked.shown())
    assert linked.bus.remotes.shown("mac", "rack", linked.clock.now(), linked.bus.limits) == "mac-rack"
    (row,) = (await linked.send("bob", "zed@attic")).deliveries
    assert row.connection == "rack"


async def test_somebody_here_goes_before_somebody_behind_a_link(linked: LinkedHub) -> None:
    await linked.know("ops")
    await linked.learn(
        "rack", [{"handle": name, "hub": RACK, "name": "rack", "way": [RACK]} for name in ("ops", "hermes")]
    )
    for to in ("ops", "hermes", "ops@local"):
        assert (await linked.send("bob", to)).deliveries[0].connection is None
    for to in ("ops@rack", "hermes@rack"):
        assert (await linked.send("bob", to)).deliveries[0].connection == "rack"


async def test_a_gateway_that_is_linked_is_known_for_as_long_as_its_connection(linked: LinkedHub) -> None:
    """A desktop's rows end after a day; those of a connection of ours when that is removed."""
    gateway = await linked.connect("Vps", None)
    await push(linked, MAIA, name="Vps")
    await push(linked, OPS, name="mac")
    await linked.clock.advance(3 * DAY)
    assert "hermes@Vps" in linked.shown()
    assert "ops@vps-1" not in linked.shown()
    assert linked.bus.remotes.count("vps") == 1
    assert (await linked.send("bob", "hermes@vps")).deliveries[0].connection == "vps"
    bus = linked.bus

    def unit(tx: Tx) -> None:
        bus.neighbours.remove(tx, gateway, linked.clock.now())
        bus.remotes.forget(tx, gateway.name, linked.clock.now())

    await bus.store.write(unit)
    for _ in range(2):
        assert "hermes@Vps" not in linked.shown()
        await linked.reopen()


async def test_a_name_that_is_made_of_two_is_no_linked_hubs(linked: LinkedHub) -> None:
    """Neither for a row, nor for a connection of which there is none, nor for what waits under an earlier name."""
    await linked.connect("mac-rack", "d" * 32)
    remotes, now, limits = linked.bus.remotes, linked.clock.now(), linked.bus.limits
    await push(linked, name="mac")
    assert remotes.shown("mac", "rack", now, limits) == "mac-rack-2"
    await push(linked, {**OPS, "profile": "zed", "connection_id": "rack"}, name="mac")
    assert "zed@mac-rack-2" in linked.shown()
    for to in ("zed@mac-rack", "zed@rack"):  # the short one means the hub that is called so, and nobody else
        with pytest.raises(UnknownAgent):
            await linked.send("bob", to)
    (row,) = (await linked.send("bob", "zed@mac-rack-2")).deliveries
    assert row.connection == "mac"
    assert linked.bus.neighbours.is_taken("mac-rack-2")
    await push(linked, name="mac")
    for to in ("zed@mac-rack-2", "zed@rack"):
        found = remotes.of_mail("mac", to)
        assert found is not None
        assert (found.connection_id, found.profile) == ("rack", "zed")


@pytest.mark.parametrize("name", ["hub", "human", "default"])
async def test_no_connection_of_a_desktop_has_this_hubs_name_or_a_reserved_one(hub: SmallHub, name: str) -> None:
    await push(hub, {**OPS, "connection_id": name}, name="mac")
    assert shown(hub) == [("ops", f"mac-{name}", None)]


async def test_a_name_that_stood_for_a_hub_is_kept_for_it(linked: LinkedHub) -> None:
    """It may come back, and comes by its own name: no desktop's connection has that meanwhile."""
    rack = linked.bus.neighbours.require("rack")
    await linked.bus.store.write(lambda tx: linked.bus.neighbours.remove(tx, rack, linked.clock.now()))
    await push(linked, {**OPS, "connection_id": "rack"}, name="mac")
    assert list(linked.shown()) == ["ops@mac-rack"]
    with pytest.raises(UnknownAgent):
        await linked.send("bob", "ops@rack")
    assert not linked.bus.neighbours.is_taken("rack")


async def test_who_has_a_token_keeps_its_names_whoever_uses_them_too(hub: SmallHub) -> None:
    await make_token(hub.bus, "studio")
    await push(hub, {**OPS, "connection_id": "vps"}, name="studio")
    await push(hub, *({**OPS, "connection_id": name, "profile": name} for name in ("vps", "studio-vps", "studio")),
               name="mac")  # fmt: skip
    await push(hub, MAIA, name="vps")
    assert {(profile, name) for profile, name, _ in shown(hub)} == {
        ("ops", "vps"), ("vps", "mac-vps"), ("studio-vps", "mac-studio-vps"), ("studio", "mac-studio"),
        ("default", "vps-local"),
    }  # fmt: skip
    for to in ("vps@vps", "studio@studio", "hermes@vps", "studio-vps@studio-vps"):
        with pytest.raises(UnknownAgent):
            await hub.send("bob", to)
    remotes, now, limits = hub.bus.remotes, hub.clock.now(), hub.bus.limits
    found = [remotes.shown("desktop", name, now, limits) for name in ("vps", "studio-vps", "studio")]
    assert found == ["desktop-vps", "desktop-studio-vps", "desktop-studio"]
    await push(hub, name="studio")  # as a desktop says that goes away: its names wait for it
    assert remotes.shown("desktop", "vps", now, limits) == "desktop-vps"
    assert ("vps", "mac-vps", None) in shown(hub)


async def test_a_desktop_has_its_own_name_and_no_connection_of_anothers(hub: SmallHub) -> None:
    await push(hub, {**OPS, "connection_id": "pc"}, name="mac")
    await push(hub, MAIA, name="pc")
    assert {(profile, name) for profile, name, _ in shown(hub)} == {("ops", "mac-pc"), ("default", "pc")}


async def test_long_names_that_would_be_one_are_told_apart(hub: SmallHub) -> None:
    """Also where they are cut."""
    ids = ("a" * 60, "a" * 61, "b-c")
    await push(hub, *({**OPS, "connection_id": name} for name in ids), name="mac")
    await push(hub, *({**OPS, "connection_id": name} for name in (*ids, "c")), name="mac-b")
    await push(hub, *({**OPS, "connection_id": name} for name in (*ids, "c")), name="pc")
    names = [name for _, name, _ in shown(hub)]
    assert len(set(names)) == len(names) == 11
    assert all(len(name) <= 64 for name in names)
    for name in names:
        carrier = (await hub.send("bob", f"ops@{name}")).deliveries[0].connection
        found = hub.bus.remotes.of_mail(str(carrier), f"ops@{name}")
        assert found is not None
        assert ("ops", name, None) in shown(hub)


async def test_many_long_names_that_would_be_one_cost_little(hub: SmallHub) -> None:
    ids = [f"{'x' * 58}-{number}" for number in range(250)]
    for name in ("m" * 63, "m" * 62 + "n", "o"):
        for start in ("", "a", "b", "c"):
            await push(hub, *({**OPS, "connection_id": start + id} for id in ids), name=name)
    begun = time.thread_time()
    assert len({name for _, name, _ in shown(hub)}) == 750
    assert time.thread_time() - begun < 1


async def test_a_hub_with_a_link_here_says_itself_who_is_there(linked: LinkedHub) -> None:
    """A neighbour that tells of others at it gets no mail that names it."""
    await linked.connect("mallory", "e" * 32)
    for theirs in (told("ops"),), ():
        await linked.learn("rack", theirs)
        await linked.learn("mallory", [told(name, way=[RACK, "e" * 32]) for name in ("boss", "ops")])
        with pytest.raises(UnknownAgent):
            await linked.send("bob", "boss@rack")
    with pytest.raises(UnknownAgent):
        await linked.send("bob", "ops@rack")
    (row,) = (await linked.send("bob", "boss@rack-mallory")).deliveries
    assert row.connection == "mallory"


async def test_a_relay_that_says_no_connection_writes_as_nobody_elses(hub: SmallHub) -> None:
    """Though it calls itself as another one's connection is called."""
    await make_token(hub.bus, "studio")
    await push(hub, {**OPS, "connection_id": "vps"}, name="studio")
    await push(hub, name="vps")
    said = attributed(hub.bus.remotes, hub.bus.limits, hub.clock.now(), "vps", "hi", "ops", "ops", None)
    assert said[0] == "ops@vps-local"
