"""Parts that were broken on purpose, to see that the state machine, the fuzzer's checks and the contract's run notice.

    python -m tests.rigs.broken_parts [NAME …]

Each fault is a change of a few words in a copy of the source. Where the words are no longer there, the fault has to be
written anew: it says so.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.acceptance.hub import ROOT, environment

F = TypeVar("F")

# How each is looked for: a program that ends with 0 where all is well. Nothing is made small: any finding will do.
PLAIN = (
    "from hypothesis import HealthCheck, Phase, given, settings, strategies as st\n"
    "how = dict(database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))\n"
)
MACHINE = PLAIN + (
    "import unittest\nfrom tests.conformance.test_machine import machine\n"
    "kind = machine('memory', 150, 50)\nkind.settings = settings(kind.settings, **how)\n"
    "tests = unittest.defaultTestLoader.loadTestsFromTestCase(kind)\n"
    "raise SystemExit(not unittest.TextTestRunner().run(tests).wasSuccessful())\n"
)
FUZZ = PLAIN + (
    "from tests.fuzz.test_fuzz import CHECKS, changed, inputs\n"
    "for data in inputs('{name}'): CHECKS['{name}'](data)\n"
    "@settings(max_examples=1500, **how)\n@given(data=st.data())\n"
    "def look(data): CHECKS['{name}'](data.draw(changed('{name}')))\n"
    "look()\n"
)
CONTRACT = "contract"
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Fault:
    """What is changed in which file, and the program that must find it."""

    look: str
    file: str
    old: str
    new: str


FAULTS = {
    "time never looks at what is forwarded": Fault(
        MACHINE, "bus/moves.py", "        return expires_at + 60_000\n", "        return None\n"
    ),
    "attempts used up, and nobody is told": Fault(
        MACHINE, "bus/moves.py", "tell_of_failure(bus, tx, dead, Reason.ATTEMPTS_USED_UP)", "pass"
    ),
    "a link's refusal is not told": Fault(
        MACHINE,
        "bus/carry.py",
        "tell_of_failure(bus, tx, done, reason, said=said or None)",
        "pass",
    ),
    "the attempt does not rise": Fault(
        MACHINE, "bus/claim.py", "attempt=old.attempt + 1, hand=hand", "attempt=1, hand=hand"
    ),
    "a turn does not count as a holder": Fault(
        MACHINE,
        "bus/turns.py",
        "if mailbox in bus.runs.busy or mailbox in bus.streams.attached or not",
        "if mailbox in bus.streams.attached or not",
    ),
    "the sums forget what waits": Fault(MACHINE, "storage/load.py", "            load.queued += queued\n", ""),
    "the newest first": Fault(
        MACHINE, "storage/memory_rows.py", "key=lambda d: (d.lane, d.seq)", "key=lambda d: (d.lane, -d.seq)"
    ),
    "what was withdrawn is a dead letter": Fault(
        MACHINE, "model/delivery.py", "    (_Q, Event.CANCEL): _F,", "    (_Q, Event.CANCEL): _X,"
    ),
    "an outcome from afar for what never went there": Fault(
        MACHINE, "bus/outcomes.py", " if state in (State.FORWARDED, State.DELIVERED) else None", ""
    ),
    "a turn that a dead hub was in is forgotten": Fault(
        MACHINE, "bus/turns.py", "_with_messages(tx, tx.turns())", "_with_messages(tx, [])"
    ),
    "mail that was damaged ends in silence": Fault(
        MACHINE,
        "bus/losses.py",
        "        tell_of_failure(bus, tx, done, Reason.DAMAGED, _UNTOUCHED if untouched else None)\n",
        "        pass\n",
    ),
    "an id of a stream with NUL": Fault(
        FUZZ.format(name="events"), "protocol/sse.py", "if 0 not in value:", "if value is not None:"
    ),
    "an id that is true": Fault(
        FUZZ.format(name="frame"),
        "protocol/jsonrpc.py",
        "if isinstance(id, bool) or not isinstance",
        "if not isinstance",
    ),
    "a way that leads through this hub": Fault(
        FUZZ.format(name="from_a_hub"), "protocol/hub.py", " or me in row.way or", " or"
    ),
    "an id of an envelope that is no text": Fault(
        FUZZ.format(name="from_a_relay"), "protocol/bot_relay_mail.py", "not isinstance(id, str) or _ID", "_ID"
    ),
    "C1 controls are shown": Fault(FUZZ.format(name="terminal"), "cli/show.py", r"\x7f-\x9f", r"\x7f"),
    "thousands of digits": Fault(
        FUZZ.format(name="query"), "doors/http/call.py", "text.isdigit() and len(text) <= 40", "text.isdigit()"
    ),
    "a surrogate gets to the database": Fault(
        FUZZ.format(name="search"), "model/query.py", '.encode("utf-8", "replace").decode()', ""
    ),
    "a Host that only begins well": Fault(
        FUZZ.format(name="host"),
        "doors/http/gatehouse.py",
        "hosts[0].lower() not in self._hosts",
        "not hosts[0].lower().startswith(tuple(self._hosts))",
    ),
    "a status that is not named": Fault(CONTRACT, "doors/http/routes.py", "answers=(200, 201)", "answers=(200,)"),
    "a problem that is called JSON": Fault(CONTRACT, "doors/http/problem.py", "kind=PROBLEM, ", ""),
    "an answer of another shape": Fault(CONTRACT, "doors/http/mailbox.py", '"remaining":%d', '"left":%d'),
    "a fault of ours": Fault(
        CONTRACT, "doors/http/agents.py", "    rows = await roster(bus, handle.lower())\n", "    rows = [][1]\n"
    ),
}


def is_found(fault: Fault) -> bool:
    """Break a copy, and look."""
    with tempfile.TemporaryDirectory(prefix="ang-") as place:
        source = Path(place) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "angelia" / fault.file
        text = file.read_text()
        assert fault.old in text, f"{fault.file} has changed: {fault.old!r} is not there"
        file.write_text(text.replace(fault.old, fault.new))
        words = ["-c", fault.look]
        path = f"{source}:{ROOT}"
        if fault.look == CONTRACT:
            words = ["-m", "tests.rigs.contract", "--minutes", "1.5", "--source", str(source)]
            path = f"{ROOT}/src:{ROOT}"
        done = subprocess.run(
            [sys.executable, *words],
            env=environment(Path(place), PYTHONPATH=path, PYTHONDONTWRITEBYTECODE="1"),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    assert "ImportError" not in done.stderr, done.stderr
    assert "SyntaxError" not in done.stderr, done.stderr
    return done.returncode != 0


def try_named(names: Sequence[str], faults: Mapping[str, F], is_found: Callable[[F], tuple[bool, str]]) -> int:
    """Try the named faults, or all, and say which were found, by what, and how many were missed; the exit code.
    ``is_found``: whether this one was, and what told so."""
    if unknown := [name for name in names if name not in faults]:
        print(f"no such fault: {unknown}; there are:", *faults, sep="\n  ", file=sys.stderr)
        return 2
    missed = 0
    for name in names or faults:
        found, said = is_found(faults[name])
        missed += not found
        print(f"{'found ' if found else 'MISSED'}  {name}\n{said[:300]}".rstrip(), flush=True)
    print(f"faults: {len(names or faults)}, missed: {missed}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(try_named(sys.argv[1:], FAULTS, lambda fault: (is_found(fault), "")))
