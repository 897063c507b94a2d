"""Three hubs that are linked, and troubles; then the judge says whether anything that was promised broke.

    python -m tests.rigs.hubs --seed 1 --minutes 10 --ground namespaces --shape mesh
    python -m tests.rigs.hubs --ground loopback --weather

Each hub is a process, in a network namespace of its own (which takes root) or on loopback with gates between them.
Agents on each ask those on the others and answer; meanwhile a hub is killed, or frozen, or a line is cut, again and
again; with ``--weather``, which takes loopback, a line is also late, brings a byte at a time, swallows what it is given
in one direction or in both, or resets after some bytes (`proxy.py`). At the end everything is well again, and what was
seen at all three hubs is judged. The exit code is 0 when there was no breach.
"""

import argparse
import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from angelia import AsyncClient
from angelia.client.errors import ClientError, HubError
from tests.acceptance.hub import READY_SECONDS
from tests.rigs.correspondents import Correspondent, Person
from tests.rigs.ground import Cut, Ground, Loopback, Namespaces
from tests.rigs.history import (
    Answered,
    Concluded,
    Handed,
    Killed,
    Receipt,
    Sent,
    Stored,
    Trouble,
    Verdict,
    crossings,
    judge,
)
from tests.rigs.neighbourhood import NAMES, FarHub, Neighbourhood, Place
from tests.rigs.proxy import Weathered
from tests.rigs.scene import moment, now

HANDLES = (("ann", "ava"), ("bob", "twin"), ("cat", "twin"))
PEOPLE = [Person(handle, home) for home, handles in enumerate(HANDLES) for handle in handles]
SHARED = frozenset({"twin"})
LINES = {"mesh": ((0, 1), (1, 2), (2, 0)), "line": ((0, 1), (2, 1))}  # who dials whom
ENVIRONMENT = {"ANGELIA_HERMES_HOME": "off", "ANGELIA_LIMITS_LEASE_SECONDS": "4"}
AWAY_SECONDS = (0.3, 5.0)  # how long a hub is frozen, or a line is cut
LAST_CUT_SECONDS = 6.0
BURST = 5  # messages of each agent that wait when the last cut heals
ROSTER_SECONDS = 30.0
OUTCOME_SECONDS = 5.0
LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. ``troubles``: which kinds there are; ``weather``: and that one."""

    seed: int = 1
    seconds: float = 60.0
    ground: str = "namespaces"
    shape: str = "mesh"
    pause: float = 0.15  # between an agent's messages, on average
    trouble_every: float = 3.0
    drain_seconds: float = 120.0
    troubles: tuple[str, ...] = ("kill", "freeze", "cut")
    weather: bool = False
    source: Path | None = None
    keep: Path | None = None


@dataclass(slots=True)
class Result:
    """The judge's verdict; answers that the contract does not have; why requests failed, how often; the hubs' words;
    how many seconds each of what waited for the last cut took to cross, and each message at all, from the moment that
    its way was free; and what troubles there were."""

    verdict: Verdict
    faults: list[str]
    failures: dict[str, int]
    output: str
    waves: list[float]
    late: list[float]
    troubles: dict[str, int]

    @property
    def good(self) -> bool:
        return not self.verdict.breaches and not self.faults

    def __str__(self) -> str:
        late = sorted(self.late) or [0.0]
        p50, p99 = late[len(late) // 2], late[len(late) * 99 // 100]
        return "\n".join([
            str(self.verdict),
            *self.faults,
            f"troubles: {self.troubles}; failures that senders were told: {self.failures}",
            f"crossed after its way was free: p50 {p50:.3f} s, p99 {p99:.2f} s, slowest {late[-1]:.2f} s",
            f"what waited for the last cut crossed within {max(self.waves, default=0.0):.2f} s",
        ])  # fmt: skip


def run(plan: Plan) -> Result:
    """The whole of it."""
    return asyncio.run(_run(plan))


async def _run(plan: Plan) -> Result:
    dice = random.Random(plan.seed)
    async with neighbourhood(plan, dice) as (near, ground):
        waves = await _play(near, ground, plan)
        output = "\n".join(place.hub.output() for place in near.places)
        for place in near.places:
            code, _ = await asyncio.to_thread(place.hub.stop)
            if code:
                near.fault(f"{place.name} ended with {code} when it was asked to end")
    if "Traceback" in output:
        near.fault("a hub's output holds a traceback:\n" + output[output.index("Traceback") :][:3000])
    if plan.keep is not None:
        plan.keep.write_text("\n".join(near.history.lines()))
    late = [seconds for _, seconds in crossings(near.history)]
    troubles = Counter(trouble.cause.split()[0] for trouble in near.history.of(Trouble))
    return Result(judge(near.history), near.faults, dict(near.failures), output, waves, late, dict(troubles))


@asynccontextmanager
async def neighbourhood(plan: Plan, dice: random.Random) -> AsyncIterator[tuple[Neighbourhood, Ground]]:
    """Three hubs that serve and are linked; at the end they, and the ground, are gone."""
    ground = _ground(plan, dice)
    places: list[Place] = []
    try:
        for number, name in enumerate(NAMES):
            env = ENVIRONMENT | {"ANGELIA_HUB_NAME": name} | ground.env(number)
            hub = FarHub(env=env, args=ground.args(number), source=plan.source, prefix=ground.prefix(number))
            places.append(Place(name, hub))
            await asyncio.to_thread(hub.start)
        near = Neighbourhood(places, dice, line=plan.shape == "line", shared=SHARED)
        for dialler, number in LINES[plan.shape]:
            await _connect(near, ground, dialler, number)
        yield near, ground
    finally:
        for place in places:
            place.hub.__exit__()
        await ground.close()


def _ground(plan: Plan, dice: random.Random) -> Ground:
    if plan.ground == "namespaces":
        return Namespaces(len(NAMES))
    return Weathered(len(NAMES), dice) if plan.weather else Loopback(len(NAMES), dice)


async def _connect(near: Neighbourhood, ground: Ground, dialler: int, number: int) -> None:
    """Link two hubs, as the owner of both would."""
    hub = near.places[number].hub
    target = await ground.target(dialler, number, hub.port)
    wanted: dict[str, Any] = {"target": target}
    if ground.needs_code:
        offered = await asyncio.to_thread(hub.post, "/v1/pairing")
        assert offered.status in (200, 201), (offered.status, offered.body)
        wanted["code"] = offered.json["code"]
    path = f"/v1/connections/{near.places[number].name}"
    said = await asyncio.to_thread(near.places[dialler].hub.call, "PUT", path, wanted)
    assert said.status in (200, 201), (said.status, said.body)


# ---- the play


async def _play(near: Neighbourhood, ground: Ground, plan: Plan) -> list[float]:
    agents = [
        Correspondent(near, me, [other for other in PEOPLE if other.home != me.home], plan.pause) for me in PEOPLE
    ]
    async with asyncio.TaskGroup() as tasks:
        for agent in agents:
            tasks.create_task(agent.read())
        await _know_each_other(near)
        await _ask_by_every_name(near)
        writing = [tasks.create_task(agent.write()) for agent in agents]
        await _trouble(near, ground, plan)
        near.closing.set()
        await asyncio.wait(writing)
        waves = await _last_cut(near, ground, agents)
        await _drain(near, plan.drain_seconds)
        near.over.set()
    await _look(near)
    for place in near.places:
        if not await asyncio.to_thread(place.hub.is_ready):
            near.fault(f"{place.name} says that it is not well")
    return waves


async def _know_each_other(near: Neighbourhood) -> None:
    """Until the roster of each hub has everybody."""
    for place in near.places:
        ends = now() + ROSTER_SECONDS
        while True:
            said = await asyncio.to_thread(place.hub.get, "/v1/agents")
            found = {row["handle"].partition("@")[0] for row in said.json["agents"]}
            missing = {person.handle for person in PEOPLE} - found
            if not missing:
                break
            assert now() < ends, f"{place.name} does not know {sorted(missing)}: {said.json}\n{place.hub.output()}"
            await asyncio.sleep(LOOK_SECONDS)


async def _ask_by_every_name(near: Neighbourhood) -> None:
    """Each asks the agents of the others by the short name and by the qualified one; a shared name is refused."""
    for home, place in enumerate(near.places):
        async with AsyncClient(f"unix:{place.hub.socket_path}", name=f"asker-{place.name}") as client:
            for other in PEOPLE:
                if other.home == home:
                    continue
                qualified = near.called(other.handle, near.places[other.home].name)
                forms = (qualified,) if other.handle in SHARED else (other.handle, qualified)
                for form in forms:
                    await _ask(near, client, f"asker-{place.name}@{place.name}", form, qualified)
    async with AsyncClient(f"unix:{near.places[0].hub.socket_path}", name="asker-alpha") as client:
        try:
            await client.send("twin", "which of you?")
        except HubError as error:
            told = f"{error} {error.extra}"
            if error.code != "ambiguous_name" or not all(f"twin@{name}" in told for name in NAMES[1:]):
                near.fault(f"a shared name was refused with {error.code}: {told}")
        else:
            near.fault("a name that two hubs have was taken for one of them")


async def _ask(near: Neighbourhood, client: AsyncClient, sender: str, form: str, to: str) -> None:
    history, mark = near.history, f"{sender}.{form}"
    message_id = f"{near.dice.getrandbits(128):032x}"
    history.add(Sent(at=now(), mark=mark, sender=sender, to=to, id=message_id, request=True))
    try:
        answer = await client.ask(form, mark, id=message_id, wait_seconds=20)
    except ClientError as error:
        near.fault(f"{sender} asked {form}: {error!r}")
        return
    history.add(Answered(at=now(), mark=mark, status=201, id=message_id))
    reply = answer["reply"]
    history.add(Concluded(at=now(), id=message_id, how="reply", by=reply["id"]))
    if (reply["text"], near.known(reply["from"], near.places[0])) != (f"re:{mark}", to):
        near.fault(f"{sender} asked {form} and was answered {reply}")
    # The hub gave the answer to whoever waited; no mailbox is looked into for it.
    history.add(Handed(
        at=now(), client=f"{sender}.ask", mailbox=sender, hand="ask", mark=reply["text"], id=reply["id"], sender=to,
        seq=10**12 + len(history.happenings), attempt=1, hub=sender.partition("@")[2],
    ))  # fmt: skip


# ---- the troubles


async def _trouble(near: Neighbourhood, ground: Ground, plan: Plan) -> None:
    """One trouble after another, sometimes two at once, until it is time."""
    ends = now() + plan.seconds
    async with asyncio.TaskGroup() as tasks:
        busy: set[str] = set()  # hubs and lines that are in trouble already
        dealt: list[str] = []
        while now() < ends:
            await asyncio.sleep(plan.trouble_every * near.dice.uniform(0.3, 1.7))
            if not dealt:
                kinds = [*plan.troubles, *(["weather"] if ground.weathers() else [])]
                dealt = near.dice.sample(kinds, len(kinds))
            kind = dealt.pop()
            if kind in ("cut", "weather"):
                cut = near.dice.choice(list(ground.cuts() if kind == "cut" else ground.weathers()))
                work, what = _cut(near, cut), cut.name
            else:
                place = near.dice.choice(near.places)
                work, what = (_kill if kind == "kill" else _freeze)(near, place), place.name
            if what in busy:
                work.close()
                continue
            busy.add(what)
            tasks.create_task(work, name=what).add_done_callback(lambda task: busy.discard(task.get_name()))


async def _kill(near: Neighbourhood, place: Place) -> None:
    at = now()
    near.history.add(Killed(at=at))
    await asyncio.to_thread(place.hub.kill9)
    await asyncio.sleep(near.dice.choice((0.0, 0.0, near.dice.uniform(*AWAY_SECONDS))))
    place.hub.launch()
    await _ready(place.hub)
    near.history.add(Trouble(at=at, until=now(), cause="kill", hubs=(place.name,)))


async def _freeze(near: Neighbourhood, place: Place) -> None:
    at, process = now(), place.hub.process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(near.dice.uniform(*AWAY_SECONDS))
    process.send_signal(signal.SIGCONT)
    near.history.add(Trouble(at=at, until=now(), cause="freeze", hubs=(place.name,)))


async def _cut(near: Neighbourhood, cut: Cut, seconds: float | None = None) -> None:
    at = now()
    await cut.begin()
    await asyncio.sleep(near.dice.uniform(*AWAY_SECONDS) if seconds is None else seconds)
    await cut.end()
    hubs = tuple(NAMES[number] for number in cut.hubs)
    cause = cut.name if seconds is None else f"last {cut.name}"
    near.history.add(Trouble(at=at, until=now(), cause=cause, hubs=hubs))


async def _ready(hub: FarHub) -> None:
    ends = time.monotonic() + READY_SECONDS
    while not await asyncio.to_thread(hub.is_ready, well=False):
        assert hub.process is not None
        assert hub.process.poll() is None, f"it ended with {hub.process.returncode}:\n{hub.output()}"
        assert time.monotonic() < ends, f"not ready within {READY_SECONDS} s:\n{hub.output()}"
        await asyncio.sleep(0.02)


async def _last_cut(near: Neighbourhood, ground: Ground, agents: list[Correspondent]) -> list[float]:
    """Everything is cut, everybody writes, everything heals: how many seconds each of these took to cross then."""
    begun = len(near.history.happenings)
    async with asyncio.TaskGroup() as tasks:
        for cut in ground.cuts():
            tasks.create_task(_cut(near, cut, LAST_CUT_SECONDS))
        await asyncio.sleep(LOOK_SECONDS)
        for agent in agents:
            tasks.create_task(_burst(agent))
    healed = max(each.until for each in near.history.of(Trouble))
    written = [each for each in near.history.happenings[begun:] if isinstance(each, Sent)]
    waited = {each.id: each for each in written if each.id is not None and each.at < healed}
    ends = now() + ROSTER_SECONDS
    crossed: dict[str, float] = {}
    while len(crossed) < len(waited) and now() < ends:
        for message_id, sent in waited.items():
            if message_id not in crossed and (at := await _stored_at(near, message_id, sent.to)) is not None:
                crossed[message_id] = at - healed
        await asyncio.sleep(LOOK_SECONDS)
    for message_id in waited.keys() - crossed.keys():
        near.fault(f"{waited[message_id].mark} had not crossed {ROSTER_SECONDS} s after all was well")
    return list(crossed.values())


async def _burst(agent: Correspondent) -> None:
    for _ in range(BURST):
        await agent.write_one()


# ---- the end


async def _drain(near: Neighbourhood, seconds: float) -> None:
    """Until whatever was accepted was handed over, whatever was asked has an outcome, and every hub knows of it."""
    ends = now() + seconds
    history = near.history
    history.drained = history.concluded = True
    while True:
        accepted = {answer.id for answer in history.of(Answered) if answer.id}
        handed = {each.id for each in history.of(Handed)}
        asked = {sent.id for sent in history.of(Sent) if sent.request} & accepted
        told = {each.id for each in history.of(Concluded)}
        open_ones = (accepted - handed - told) | (asked - told)
        waiting = await _waiting(near)
        if not open_ones and not waiting:
            return
        if now() > ends:
            near.fault(f"not drained within {seconds} s: {len(open_ones)} open, waiting: {waiting}")
            return
        await asyncio.sleep(5 * LOOK_SECONDS)


async def _waiting(near: Neighbourhood) -> dict[str, Any]:
    """What the hubs say that still waits, or whose outcome they await."""
    found = {}
    for place in near.places:
        status = (await asyncio.to_thread(place.hub.get, "/v1/connections")).json
        for row in status["connections"]:
            if not row["up"] or row["waiting"]:
                found[f"{place.name} → {row['name']}"] = {key: row.get(key) for key in ("up", "waiting", "problem")}
    return found


async def _stored_at(near: Neighbourhood, message_id: str, to: str) -> float | None:
    """When a message was stored at the hub of the agent that it is for."""
    hub = near.places[NAMES.index(to.partition("@")[2])].hub
    said = await asyncio.to_thread(hub.kept, "GET", f"/v1/messages/{message_id}")
    return moment(said.json["deliveries"][0]["accepted_at"]) if said.status == 200 else None


async def _look(near: Neighbourhood) -> None:
    """Ask the hub of each sender what became of its messages, and the hub of each reader when they came."""
    history = near.history
    marks = {sent.mark: sent for sent in history.of(Sent)}
    accepted = {answer.id: marks[answer.mark] for answer in history.of(Answered) if answer.id is not None}
    ends = now() + OUTCOME_SECONDS
    for message_id, sent in accepted.items():
        state = await _final_state(near.places[NAMES.index(sent.sender.partition("@")[2])].hub, message_id, ends)
        history.add(Receipt(at=now(), id=message_id, mailbox=sent.to, state=state))
        stored_at = await _stored_at(near, message_id, sent.to)
        if stored_at is not None:
            way = near.way(sent.sender, sent.to)
            history.add(Stored(at=stored_at, id=message_id, mailbox=sent.to, way=way))


async def _final_state(hub: FarHub, message_id: str, ends: float) -> str | None:
    """How a message stands in the end; None where it is not known. Until ``ends`` its outcome may be on its way."""
    while True:
        said = await asyncio.to_thread(hub.kept, "GET", f"/v1/messages/{message_id}")
        if said.status != 200:
            return None
        state = str(said.json["deliveries"][0]["state"])
        if state not in ("queued", "leased", "forwarded") or now() > ends:
            return state
        await asyncio.sleep(LOOK_SECONDS)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--ground", choices=["namespaces", "loopback"], default="loopback")
    parser.add_argument("--weather", action="store_true", help="lines are bad, too; on loopback alone")
    parser.add_argument("--shape", choices=sorted(LINES), default="mesh")
    parser.add_argument("--pause", type=float, default=0.15, metavar="SECONDS", help="between an agent's messages")
    parser.add_argument("--trouble-every", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--source", type=Path, help="another src folder, for a hub that was broken on purpose")
    parser.add_argument("--keep", type=Path, help="write the history to this file")
    options = parser.parse_args()
    if options.weather and options.ground != "loopback":
        parser.error("--weather takes --ground loopback")
    result = run(Plan(
        seed=options.seed, seconds=options.minutes * 60, ground=options.ground, shape=options.shape,
        pause=options.pause, trouble_every=options.trouble_every, source=options.source, keep=options.keep,
        weather=options.weather,
    ))  # fmt: skip
    print(result)
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
