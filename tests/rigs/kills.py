"""Kill the hub again and again under load, and let the judge say whether anything that was promised broke.

    python -m tests.rigs.kills --seed 1 --minutes 1 --senders 100 --readers 20 --kill-every 1.0

Senders and readers of every kind run at once; the hub is killed with SIGKILL and started again on the same folder; in
the end everything is drained, and what was seen is judged. The exit code is 0 when there was no breach.
"""

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tests.acceptance.hub import READY_SECONDS, Hub
from tests.rigs.history import Answered, Concluded, Handed, Killed, Left, Receipt, Sent, Verdict, judge
from tests.rigs.readers import Poller, make_readers
from tests.rigs.scene import MAILBOXES, Scene, now
from tests.rigs.senders import make_senders
from tests.rigs.talk import Broken

LOOK_SECONDS = 0.2
# A lease that its holder, killed or forgetful, leaves to run out must not outlast the drain.
ENVIRONMENT = {"ANGELIA_LIMITS_LEASE_SECONDS": "4"}
# How often the hub is killed before it is ready.
EARLY = 0.15
# After the last kill, so that those who leave before the end have something that they leave.
CALM_SECONDS = 1.5
Trouble = Callable[[Scene], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do. It ends after so many ``kills``, or after so many seconds when there is no number of them."""

    seed: int = 1
    seconds: float = 60.0
    kills: int | None = None
    senders: int = 100
    readers: int = 20
    kill_every: float = 1.0
    pause: float = 0.2  # between a sender's messages, on average
    drain_seconds: float = 180.0
    until: float = math.inf  # by the clock of the history: no kill after that, however many are left
    source: Path | None = None
    keep: Path | None = None  # where to write the history


@dataclass(slots=True)
class Result:
    """The judge's verdict, answers that the contract does not have, streams told to begin anew, and the hub's words."""

    verdict: Verdict
    faults: list[str]
    resets: list[str]
    output: str

    @property
    def good(self) -> bool:
        return not self.verdict.breaches and not self.faults


def run(plan: Plan) -> Result:
    """The whole of it."""
    with Hub(source=plan.source, env=ENVIRONMENT) as hub:
        scene = asyncio.run(_play(hub, plan))
        code, _ = hub.stop()
        if code:
            scene.fault(f"the hub ended with {code} when it was asked to end")
        for path in hub.folder.glob("*.db"):
            found = list(apsw.Connection(str(path)).execute("PRAGMA integrity_check"))
            if found != [("ok",)]:
                scene.fault(f"{path.name}: {found[:5]}")
        output = hub.output()
    if "Traceback" in output:
        scene.fault("the hub's output holds a traceback:\n" + output[output.index("Traceback") :][:3000])
    if plan.keep is not None:
        plan.keep.write_text("\n".join(scene.history.lines()))
    return Result(judge(scene.history), scene.faults, scene.resets, output)


async def _play(hub: Hub, plan: Plan, trouble: Trouble | None = None, host: str = "127.0.0.1") -> Scene:
    """``trouble``: what befalls the hub meanwhile, in place of kills; at its end all is well."""
    scene = Scene(hub, random.Random(plan.seed), host=host)
    await _introduce(scene)
    senders = make_senders(scene, plan.senders, plan.pause)
    async with asyncio.TaskGroup() as tasks:
        for reader in make_readers(scene, plan.readers):
            tasks.create_task(reader.run())
        sending = [tasks.create_task(sender.run()) for sender in senders]
        await (_kill(scene, plan) if trouble is None else trouble(scene))
        scene.closing.set()
        await asyncio.wait(sending)
        await _drain(scene, plan.drain_seconds)
        await _conclude(scene, plan.drain_seconds)
        scene.over.set()
    await _look(scene)
    if not hub.is_ready():
        scene.fault("the hub says that it is not well")
    return scene


async def _introduce(scene: Scene) -> None:
    """Make every mailbox known: nobody can be written to before."""
    talk = scene.talk
    for mailbox in MAILBOXES:
        said = await talk.call("POST", f"/v1/agents/{mailbox}/claim", {"limit": 1})
        assert said.status == 200, said
    talk.close()


async def _kill(scene: Scene, plan: Plan) -> None:
    """Kill and start, until it is time."""
    ends = min(plan.until, now() + plan.seconds if plan.kills is None else math.inf)
    kills = 0
    while now() < ends and (plan.kills is None or kills < plan.kills):
        await asyncio.sleep(plan.kill_every * scene.dice.uniform(0.5, 1.5))
        scene.history.add(Killed(at=now()))
        await asyncio.to_thread(scene.hub.kill9)
        kills += 1
        scene.hub.launch()
        if scene.dice.random() < EARLY:
            await asyncio.sleep(scene.dice.uniform(0, 0.5))
            continue
        await _ready(scene.hub)
    await _ready(scene.hub)
    await asyncio.sleep(CALM_SECONDS)


async def _ready(hub: Hub) -> None:
    """Wait until it answers; whether it is well is asked at the end."""
    ends = time.monotonic() + READY_SECONDS
    while not await asyncio.to_thread(hub.is_ready, well=False):
        assert hub.process is not None
        assert hub.process.poll() is None, f"it ended with {hub.process.returncode}:\n{hub.output()}"
        assert time.monotonic() < ends, f"not ready within {READY_SECONDS} s:\n{hub.output()}"
        await asyncio.sleep(0.02)


async def _drain(scene: Scene, seconds: float) -> None:
    """Wait until no mailbox that somebody reads holds anything. What is left then is stranded, as the judge says."""
    scene.history.drained = True
    ends = now() + seconds
    empty = 0
    while empty < 3:
        totals = [await _total(scene, mailbox) for mailbox in MAILBOXES]
        empty = 0 if any(totals) else empty + 1
        if now() > ends:
            scene.fault(f"not drained within {seconds} s: {dict(zip(MAILBOXES, totals, strict=True))}")
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _total(scene: Scene, mailbox: str) -> int:
    talk = scene.talk
    said = await talk.call("GET", f"/v1/agents/{mailbox}/inbox?limit=1")
    talk.close()
    if said.status == 503:
        return 1  # too busy to look
    if said.status != 200:
        scene.fault(f"the inbox of {mailbox} was answered with {said.status}: {said.body[:300]!r}")
        return 1
    return int(said.json["total"])


async def _conclude(scene: Scene, seconds: float) -> None:
    """Every sender of questions reads its answers, and the notices of what failed, until it has them all."""
    history = scene.history
    asked: dict[str, set[str]] = {}
    for sent in history.of(Sent):
        if sent.request and sent.id is not None:
            asked.setdefault(sent.sender, set()).add(sent.id)
    ends = now() + seconds
    async with asyncio.TaskGroup() as tasks:
        for sender, ids in asked.items():
            tasks.create_task(_read_answers(scene, sender, ids, ends))
    history.concluded = True


async def _read_answers(scene: Scene, name: str, waiting: set[str], ends: float) -> None:
    reader = Poller(scene, f"answers-{name}", name)
    client = reader.born()
    while waiting and now() < ends:
        asked_at = now()
        said = await reader.talk.call("GET", f"/poll?agent={name}&wait=1")
        for item in said.json["messages"]:
            reader.handed(item, client, "poll", asked_at)
            meta = item["_meta"]
            about = meta.get("about") if meta["kind"] == "notice" else meta.get("in_reply_to")
            if about is None:
                continue
            how = "failure" if meta["kind"] == "notice" else "reply"
            late = bool(meta.get("late"))
            scene.history.add(Concluded(at=now(), id=about, how=how, late=late, by=meta["id"]))
            waiting.discard(about)
    reader.talk.close()


async def _look(scene: Scene) -> None:
    """Ask for the receipt of whatever was not seen, and of some of the rest; and look into every mailbox."""
    history = scene.history
    seen = {(handed.id, handed.mailbox) for handed in history.of(Handed)}
    marks = {sent.mark: sent for sent in history.of(Sent)}
    accepted = {
        answer.id: (marks[answer.mark].sender, marks[answer.mark].to) for answer in history.of(Answered) if answer.id
    }
    wanted = [id_ for id_, (_, to) in accepted.items() if (id_, to) not in seen]
    wanted += scene.dice.sample(list(accepted), min(len(accepted), 300))
    talk = scene.talk
    for id_ in wanted:
        said = await talk.call("GET", f"/v1/messages/{id_}")
        if said.status == 404:
            history.add(Receipt(at=now(), id=id_, mailbox=accepted[id_][1], state=None))
            continue
        for row in said.json["deliveries"]:
            by = row.get("by") or row.get("holder", {}).get("by")
            at = scene.moment(row.get("delivered_at"))
            history.add(Receipt(at=now(), id=id_, mailbox=row["to"], state=row["state"], by=by, delivered_at=at))
    for mailbox in MAILBOXES:
        with suppress(Broken):
            said = await talk.call("GET", f"/v1/agents/{mailbox}/inbox?limit=100")
            for row in said.json["deliveries"]:
                history.add(Left(at=now(), id=row["message"]["id"], mailbox=mailbox))
    talk.close()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--kills", type=int, help="end after so many instead")
    parser.add_argument("--senders", type=int, default=100)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--kill-every", type=float, default=1.0, metavar="SECONDS")
    parser.add_argument("--pause", type=float, default=0.2, metavar="SECONDS", help="between a sender's messages")
    parser.add_argument("--source", type=Path, help="another src folder: a hub that was broken on purpose")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the history there")
    given = vars(parser.parse_args())
    plan = Plan(seconds=given.pop("minutes") * 60, **given)
    begun = time.monotonic()
    result = run(plan)
    print(result.verdict)
    for fault in result.faults:
        print("fault:", fault)
    for reset in result.resets:
        print("reset:", reset)
    print(json.dumps({"seed": plan.seed, "seconds": round(time.monotonic() - begun, 1), **result.verdict.figures}))
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
