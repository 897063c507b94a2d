"""Hubs that were broken on purpose, to see that the tests which are no rigs notice.

    python -m tests.rigs.broken_tests [NAME …]

As `broken.py`: each fault is a change of a few words in a copy of the source, and says so where the words are gone. The
tests that must turn red stand beside it. They are run in that copy, so that whatever they start is broken.
"""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.hub import ROOT, environment
from tests.rigs.broken import Fault, break_it
from tests.rigs.broken_links import FAULTS as LINKS
from tests.rigs.broken_parts import try_named

SECONDS = 300
FAILED = 1  # what pytest ends with when tests were run and some failed


@dataclass(frozen=True, slots=True)
class Bite:
    """What is broken, and the tests of which at least one must fail."""

    fault: Fault
    tests: tuple[str, ...]


def _bite(file: str, old: str, new: str, *tests: str) -> Bite:
    return Bite(Fault(file, ((old, new),), ()), tests)


BETWEEN_HUBS = "acceptance/test_bad_network.py::test_between_hubs_each_message_crosses_once_through_all_of_it"
CLOCKS = "acceptance/test_clocks_and_freezes.py::"
FAULTS: dict[str, Bite] = {
    # ---- who is woken, and who is there
    "somebody is woken by writing to itself": _bite(
        "bus/place.py",
        "OWN_LANE if mailbox == sender and address.carrier is None else others_lane",
        "others_lane",
        "unit/bus/test_turns.py::test_what_it_sent_to_itself_holds_up_no_mail_of_others",
    ),
    "whoever has an adapter is there": _bite(
        "bus/rosters.py",
        "bus.working.works(agent) else None",
        "agent.adapter is not None else None",
        "unit/bus/test_rosters.py::test_one_is_there_while_its_adapter_works_and_else_nobody_knows",
    ),
    # ---- the network and the disk
    "a head may take for ever": _bite(
        "doors/http/protocol.py",
        "        if self._late is None:\n            self._late = self",
        "        if False:\n            self._late = self",
        "acceptance/test_endless_heads.py::test_heads_that_come_slowly_and_do_not_end_are_cut_in_time_at_every_door",
    ),
    "a greeting of TLS may take a minute": _bite(
        "doors/http/server.py",
        "None if self._tls is None else self._patience.head_seconds",
        "None",
        "acceptance/test_endless_heads.py::test_heads_that_come_slowly_and_do_not_end_are_cut_in_time_at_every_door",
    ),
    "a head may be of any size": _bite(
        "doors/http/protocol.py",
        "if self._unused_bytes > self._patience.head_bytes and",
        "if self._unused_bytes > 1 << 40 and",
        "acceptance/test_endless_heads.py::test_a_head_that_comes_fast_and_does_not_end_is_refused_at_its_bound",
    ),
    "no picture is taken back": _bite(
        "storage/sqlite/checkpoints.py",
        "        self._revoke()\n        self.fold()",
        "        self.fold()",
        "acceptance/test_leaks.py::test_the_log_of_the_store_stays_short_whoever_reads",
    ),
    "a lease is never forgotten": _bite(
        "bus/leases.py",
        "            del self._by_key[key]\n",
        "            pass\n",
        "acceptance/test_leaks.py::test_after_each_kind_of_use_everything_is_back_where_it_was",
    ),
    "between hubs: what was on its way when the line broke is let go": Bite(
        LINKS["what was on its way when the line broke is let go"],
        (BETWEEN_HUBS,),
    ),
    "what comes behind a refused one passes it": _bite(
        "bus/arrive.py",
        "    if code is not None:\n        return Stored",
        "    if False:\n        return Stored",
        "unit/bus/test_backpressure.py::test_what_was_on_its_way_does_not_pass_the_one_that_was_refused",
    ),
    "a full mailbox's mail is tried each by itself": _bite(
        "bus/place.py",
        "deferred=jammed and not held",
        "deferred=False",
        "unit/bus/test_backpressure.py::test_what_is_sent_while_it_lasts_waits_behind_it_although_there_is_room",
    ),
    "between hubs: what comes back takes a new place": Bite(
        LINKS["what comes back to a link takes a new place"],
        ("unit/bus/test_carry.py::test_what_a_cut_gave_back_goes_again_in_its_place_however_often",),
    ),
    "between hubs: what comes again is another message": Bite(
        Fault(
            "bus/arrive.py",
            (
                ("if (known := tx.message(item.id)) is not None:", "if (known := tx.message('')) is not None:"),
                ("        id=item.id,\n", "        id=bus.ids.message_id() if tx.message(item.id) else item.id,\n"),
            ),
            (),
        ),
        (BETWEEN_HUBS,),
    ),
    # ---- clocks
    "times to live are on the wall clock": _bite(
        "bus/system.py",
        "return self._offset_ms + time.clock_gettime_ns(_FORWARD) // 1_000_000",
        "return time.time_ns() // 1_000_000",
        CLOCKS + "test_a_clock_that_jumps_ends_nothing_and_puts_nothing_off",
    ),
    "leases are on the wall clock": _bite(
        "bus/system.py",
        "return time.monotonic()",
        "return time.time()",
        CLOCKS + "test_a_clock_that_jumps_ends_nothing_and_puts_nothing_off",
    ),
    "a delay outlives the hub, on the wall clock": _bite(
        "storage/sqlite/opening.py",
        "deferred=False)",
        "deferred=old.deferred)",
        CLOCKS + "test_mail_survives_a_restart_under_another_clock",
    ),
    "what is left to live is counted by the sender's clock": _bite(
        "bus/arrive.py",
        "ttl_seconds=min(item.expires_in / 1000,",
        "ttl_seconds=min(max(item.created_at + item.expires_in - bus.clock.now(), 1) / 1000,",
        CLOCKS + "test_hubs_whose_clocks_differ_by_years_ask_and_answer_as_others_do",
    ),
    # ---- busy, bounds, loops
    "a turn does not keep the next one waiting": _bite(
        "bus/turns.py",
        "if mailbox in bus.runs.busy or mailbox in bus.streams.attached or not",
        "if not",
        "unit/bus/test_turns.py",
    ),
    "a text may be of any size": _bite(
        "bus/publish.py",
        "_bytes(draft.text) > limits.text_bytes:",
        "_bytes(draft.text) < 0:",
        "acceptance/test_refusals.py::test_a_message_that_is_wrong_is_refused_and_not_stored",
    ),
    "a chain may be of any depth": _bite(
        "bus/publish.py",
        "if envelope.depth > bus.limits.chain_depth:",
        "if envelope.depth < 0:",
        "unit/bus/test_publish.py::test_a_chain_that_is_too_deep_is_held",
    ),
    "a circle of asks may close": _bite(
        "bus/ask.py",
        "bus.asks.would_close_circle(asker, targets) if blocks else None",
        "None",
        "acceptance/test_native.py::test_a_circle_of_asks_is_refused_to_the_one_that_would_close_it",
    ),
    # ---- who gets in, and what a text may do
    "whoever comes by the socket is the owner, whatever token is shown": _bite(
        "doors/http/gatehouse.py",
        "        if token is not None:\n            digest",
        "        if call.connection.local_admin:\n            return ADMIN\n"
        "        if token is not None:\n            digest",
        "acceptance/test_who_may.py::test_every_cell_over_the_gateway",
    ),
    "a keyed name takes no token": _bite(
        "bus/caller.py",
        "    if keyed:\n",
        "    if False:\n",
        "acceptance/test_native.py::test_a_keyed_name_belongs_to_its_key",
    ),
    "anybody may do anything": _bite(
        "bus/caller.py",
        "    if caller.rank in MAY[verb]:\n",
        "    if caller:\n",
        "acceptance/test_who_may.py::test_only_the_owner_stops_the_hub",
    ),
    "a terminal is obeyed": _bite(
        "protocol/prompt.py",
        "return _OBEYED.sub(lambda found: _spelled(found[0]), text)",
        "return text",
        "unit/protocol/test_prompt.py::test_terminal_escapes_are_shown_and_not_obeyed",
    ),
    "the fence can be guessed": _bite(
        "protocol/prompt.py",
        "fence = randomness(FENCE_BYTES).hex()",
        'fence = "0" * 2 * FENCE_BYTES',
        "unit/protocol/test_prompt.py",
    ),
    # ---- the process
    "a folder may have two owners": _bite(
        "storage/lock.py",
        '            return False\n        raise UnfitFolder(f"The data folder cannot be locked',
        '            return True\n        raise UnfitFolder(f"The data folder cannot be locked',
        "acceptance/test_process.py::test_a_second_start_changes_nothing",
    ),
    "nobody is told goodbye": _bite(
        "bus/core.py",
        '    bus.streams.end_all("bye")\n',
        "",
        "acceptance/test_streams.py::test_a_thousand_streams_are_told_goodbye",
    ),
    "what was found out once is said for ever": _bite(
        "bus/health.py",
        "if now >= _good_until(bus, health):",
        "if health.at is None:",
        "unit/bus/test_health.py::test_what_is_said_is_at_most_five_seconds_old",
    ),
    "health is well whatever is": _bite(
        "bus/health.py",
        "health.failing = await _self_test(bus, health)",
        "health.failing = None",
        "acceptance/test_health.py::test_while_nobody_can_write_health_says_so_and_it_is_well_again_by_itself",
    ),
    "it says that it serves before it does": Bite(
        Fault(
            "app.py",
            (
                (
                    "    store = await SqliteStore.open(",
                    "    announce(_urls(settings, tcp))\n    store = await SqliteStore.open(",
                ),
                ("            announce(urls)\n", ""),
            ),
            (),
        ),
        ("acceptance/test_process.py::test_it_is_ready_when_it_says_so",),
    ),
    "all come back at one moment": _bite(
        "doors/http/stream.py",
        "back = bus.limits.retry_milliseconds + random.randrange(SPREAD_MS)",
        "back = bus.limits.retry_milliseconds",
        "acceptance/test_streams.py::test_a_thousand_streams_are_told_goodbye",
    ),
    "a call outlives its token": _bite(
        "doors/http/gatehouse.py",
        "            loop.call_later(GOODBYE_SECONDS, cut_off)",
        "            pass",
        "acceptance/test_revoked_ask.py::test_a_question_that_waits_ends_within_a_second_of_its_tokens_revocation",
    ),
    "whoever waits for what is outside is not told of the stop": _bite(
        "bus/core.py",
        "    bus.outside.end_all()\n",
        "",
        "acceptance/test_stopping.py::test_a_look_at_an_agent_ends_with_the_hub",
    ),
    "the loop takes the signals with it": _bite(
        "ending.py",
        "        _on_asking(lambda *_: self.call(End.ASKED))\n",
        "        for number in (signal.SIGTERM, signal.SIGINT):\n"
        "            loop.add_signal_handler(number, self.call, End.ASKED)\n",
        "unit/test_ending.py::test_who_asks_behind_the_loop_of_a_hub_that_replaces_itself_is_heard",
    ),
    # ---- names, and what is theirs
    "a letter proves whomever it names": _bite(
        "doors/hermes_home/files.py",
        "if sender.lower() != DEFAULT_HANDLE and sender not in self.profiles():",
        "if False:",
        "acceptance/test_hermes_home.py::test_a_keyed_name_is_not_to_be_had_by_a_letter",
    ),
    "others may write letters": _bite(
        "doors/hermes_home/files.py",
        "_OTHERS_WRITE = 0o022",
        "_OTHERS_WRITE = 0",
        "acceptance/test_hermes_home.py::test_where_others_may_write_nobody_is_proved_and_the_log_says_how_to_mend_it",
    ),
    "others may read a secret": _bite(
        "turns/adapters/secret_file.py",
        "    if mode & 0o077:",
        "    if False:",
        "acceptance/test_wide_secrets.py::test_a_token_that_others_can_use_is_not_handed_to_its_agent",
    ),
    "who leaves is still reached as before": _bite(
        "bus/directory.py",
        'description="", adapter=None)',
        'description="")',
        "acceptance/test_turns.py::test_who_leaves_and_joins_again_is_woken_again",
    ),
    "what an agent writes anew begins anew": _bite(
        "bus/publish.py",
        "if run is not None and run.parcel.envelope.depth >= spot.depth:",
        "if False:",
        "acceptance/test_loops.py::test_three_agents_in_a_circle_end_by_themselves_and_each_message_has_an_outcome",
    ),
    "whoever repeats is told that nobody is called so": _bite(
        "bus/publish.py",
        "        return error\n\n\ndef resolve(",
        "        raise\n\n\ndef resolve(",
        "acceptance/test_native.py::test_a_repeat_is_the_same_message_when_nobody_is_called_so_any_more",
    ),
    "a name elsewhere is an open one": _bite(
        "bus/claim.py",
        'if "@" in mailbox:',
        "if False:",
        "acceptance/test_elsewhere.py::test_what_a_keyed_name_and_somebody_elsewhere_write_each_other_is_not_found_by_others",
    ),
    "an answer goes to whoever is called so now": _bite(
        "bus/way_back.py",
        "home is not None and behind.hub not in (None, home)",
        "False",
        "acceptance/test_forging_hubs.py::test_an_answer_for_a_hub_that_was_removed_is_not_for_one_that_the_owner_calls_so_since",
    ),
    "a code keys a hub that is connected": _bite(
        "links/reception.py",
        "if met.key is not None and known.key != met.key:",
        "if met.key is not None and known.key not in (None, met.key):",
        "acceptance/test_forging_hubs.py::test_a_code_makes_nobody_another_hub_that_is_connected",
    ),
    "whoever got a question sees its answer": _bite(
        "bus/look.py",
        "if reply is not None and not _party(bus, caller, reply, view.deliveries(reply.id)):",
        "if False:",
        "acceptance/test_forging_hubs.py::test_the_answer_of_one_to_a_question_for_all_is_between_those_two",
    ),
    "anybody answers for a desktop": _bite(
        "bus/desktops.py",
        "    return not elsewhere and not bus.directory.tokens_of(DESKTOP + desktop)",
        "    return True",
        "acceptance/test_elsewhere.py::test_nobody_without_its_token_answers_for_a_desktop_that_has_one",
    ),
    "programs get all that stands in the hub's environment": _bite(
        "bus/surroundings.py",
        "if any(fnmatchcase(name, pattern) for pattern in passed)",
        "if True",
        "acceptance/test_turns.py::test_a_program_gets_a_small_environment_and_no_secret_of_ours",
    ),
}


def is_found(bite: Bite) -> tuple[bool, str]:
    """Break a copy, and run the tests there: whether any failed, and what pytest said at the end."""
    with tempfile.TemporaryDirectory(prefix="ang-broken-", dir="/tmp") as into:
        copy = Path(into)
        source = break_it(bite.fault, copy)
        shutil.copytree(ROOT / "tests", copy / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "docs", "examples"):
            (copy / name).symlink_to(ROOT / name)
        words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=line"]
        done = subprocess.run(
            [*words, *(f"tests/{test}" for test in bite.tests)], env=environment(copy, source), cwd=copy,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode in (0, FAILED), f"the tests could not be run:\n{done.stdout}\n{done.stderr}"
    return done.returncode == FAILED, "\n".join(
        line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    )


if __name__ == "__main__":
    sys.exit(try_named(sys.argv[1:], FAULTS, is_found))
