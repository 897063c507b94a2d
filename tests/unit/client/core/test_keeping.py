"""Claims that are kept: taking, renewing, losing, and what the end does."""

from typing import Any

import pytest

from angelia.client.core.finishing import Finished
from angelia.client.core.keeping import Held, claiming, ending, renewing
from angelia.client.errors import ClientError, HubError, LeaseLost, NoHub
from tests.fakes.script import Script, absent, lost, no, ok, silent

LEASED = ok({"state": "leased", "deadline": "2026-01-01T00:00:00.000Z"})
ACKED = ok({"state": "delivered"})
LOST = no(409, "lease_lost", holder="claim")


def delivery(number: int, attempt: int = 1) -> dict[str, Any]:
    return {
        "message": {"id": f"{number:032x}", "text": f"no. {number}"}, "seq": number, "attempt": attempt,
        "lease": {"token": f"{number}-{attempt}-ff", "attempt": attempt},
    }  # fmt: skip


def claimed(*numbers: int) -> tuple[int, bytes]:
    return ok({"deliveries": [delivery(number) for number in numbers], "remaining": 0})


# ---- taking


def claiming_by(script: Script, **more: Any) -> Any:
    given = {"lease_seconds": 60.0, "wait_seconds": None, "notice": lambda _: None, "finished": (), **more}
    own = given.pop("own", Finished())
    return script.items(claiming(script.verbs(), own, given.pop("finished"), **given))


def test_one_at_a_time_and_only_when_it_is_asked_for() -> None:
    script = Script(claimed(1), claimed(), claimed(2))
    taken = claiming_by(script)
    assert next(taken) == delivery(1)
    assert script.bodies == [{"limit": 1, "lease_seconds": 60.0, "wait_seconds": 50.0}]
    assert next(taken) == delivery(2)
    assert len(script.exchanges) == 3


def test_it_ends_when_nothing_came_for_so_long() -> None:
    script = Script(claimed(1), claimed())
    assert list(claiming_by(script, wait_seconds=0)) == [delivery(1)]
    assert [body["wait_seconds"] for body in script.bodies] == [0, 0]


def test_a_long_wait_is_made_of_shorter_ones() -> None:
    script = Script(claimed())

    def slow() -> Any:
        script.now += script.bodies[-1]["wait_seconds"]
        return claimed()

    script.next_outcome = slow  # type: ignore[method-assign]
    assert list(claiming_by(script, wait_seconds=120)) == []
    assert [body["wait_seconds"] for body in script.bodies] == [50, 50, 20]


def test_for_ever_means_through_a_hubs_absence() -> None:
    told: list[str] = []
    script = Script(absent(), lost(), silent(), no(503, "stopping"), claimed(1))
    assert next(claiming_by(script, notice=told.append)) == delivery(1)
    assert script.pauses == [2, 4, 8, 16]
    assert [text.endswith("trying again") for text in told] == [True, False]


def test_a_wait_that_ends_without_a_hub_says_so() -> None:
    with pytest.raises(NoHub):
        list(claiming_by(Script(absent()), wait_seconds=10))


def test_a_refusal_is_raised() -> None:
    with pytest.raises(HubError):
        next(claiming_by(Script(no(401, "token_required"))))


@pytest.mark.parametrize("known", ["own", "finished"])
def test_what_was_finished_before_is_settled_and_dropped(known: str) -> None:
    finished = Finished()
    finished.add(f"{1:032x}")
    script = Script(claimed(1), ACKED, claimed(2))
    assert next(claiming_by(script, **{known: finished})) == delivery(2)
    assert script.exchanges[1].path == "/v1/leases/1-1-ff/ack"


# ---- renewing


def renewed(*outcomes: Any, lease: float = 60.0, keep: float = 7200.0) -> tuple[Held, Script]:
    script, held = Script(*outcomes), Held(delivery(1))
    script.play(renewing(script.verbs(), held, lease_seconds=lease, keep_seconds=keep))
    return held, script


def test_a_lease_is_renewed_at_a_third_of_its_time_up_to_the_cap_and_no_further() -> None:
    held, script = renewed(LEASED, lease=60, keep=7200)
    assert script.pauses == [20.0] * 360
    assert len(script.exchanges) == 359
    assert script.bodies[0] == {"lease_seconds": 60}
    assert held.lost
    with pytest.raises(LeaseLost, match="7200"):
        held.check()


def test_a_lease_that_the_hub_took_back_is_lost() -> None:
    held, script = renewed(LEASED, LEASED, LOST)
    assert len(script.exchanges) == 3
    with pytest.raises(LeaseLost) as caught:
        held.check()
    assert caught.value.extra == {"holder": "claim"}


def test_a_renewal_that_nobody_answered_is_tried_again_soon() -> None:
    held, script = renewed(LEASED, absent(), silent(), no(503, "unwell"), LEASED, LOST)
    assert script.pauses == [20, 20, 1, 1, 1, 20]
    assert held.lost


def test_a_short_lease_is_renewed_in_time_too() -> None:
    _, script = renewed(LEASED, absent(), LEASED, LOST, lease=1.0)
    assert script.pauses == pytest.approx([1 / 3, 1 / 3, 1 / 12, 1 / 3])
    assert all(step.seconds <= 1.0 for step in script.exchanges)


def test_a_refusal_of_another_kind_is_a_loss_too() -> None:
    held, _ = renewed(no(404, "unknown_message"))
    with pytest.raises(LeaseLost) as caught:
        held.check()
    assert caught.value.code == "unknown_message"


def test_one_that_is_ours_passes_the_check() -> None:
    held = Held(delivery(3, attempt=2))
    held.check()
    assert (held.id, held.lease, held.attempt, held.seq, held.lost) == (f"{3:032x}", "3-2-ff", 2, 3, False)


# ---- the end


def ended(error: BaseException | None, *outcomes: Any) -> tuple[Held, Finished, Script]:
    script, held, own = Script(*outcomes), Held(delivery(1)), Finished()
    script.play(ending(script.verbs(), held, own, error))
    return held, own, script


def test_work_that_ended_well_is_finished_and_acked() -> None:
    _, own, script = ended(None, ACKED)
    assert script.exchanges[0].path == "/v1/leases/1-1-ff/ack"
    assert f"{1:032x}" in own


def test_an_ack_is_repeated_while_the_hub_is_on_its_way() -> None:
    _, _, script = ended(None, lost(), absent(), ACKED)
    assert len(script.exchanges) == 3


@pytest.mark.parametrize("away", [absent(), silent(), lost()])
def test_an_ack_that_nobody_takes_is_no_error_since_the_message_is_known(away: ClientError) -> None:
    _, own, _ = ended(None, away)
    assert f"{1:032x}" in own


def test_finished_work_that_another_was_given_too_is_told() -> None:
    script, held, own = Script(LOST), Held(delivery(1)), Finished()
    with pytest.raises(LeaseLost):
        script.play(ending(script.verbs(), held, own, None))
    assert held.lost
    assert f"{1:032x}" in own


def test_a_lease_that_was_lost_and_that_nobody_took_is_acked_all_the_same() -> None:
    script, held, own = Script(ok({"state": "delivered", "late": True})), Held(delivery(1)), Finished()
    held.lose(LeaseLost(409, "lease_lost", "", "over", {}))
    script.play(ending(script.verbs(), held, own, None))
    assert script.exchanges[0].path.endswith("/ack")


def test_work_that_failed_is_given_back_later_each_time() -> None:
    _, own, script = ended(RuntimeError("no disk" + "!" * 500), ok({"state": "queued"}))
    assert script.exchanges[0].path == "/v1/leases/1-1-ff/nack"
    assert set(script.bodies[0]) == {"reason"}
    assert script.bodies[0]["reason"].startswith("RuntimeError: no disk")
    assert len(script.bodies[0]["reason"]) == 200
    assert f"{1:032x}" not in own


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_work_that_was_told_to_stop_is_given_back_at_once(error: BaseException) -> None:
    _, _, script = ended(error, ok({"state": "queued"}))
    assert script.bodies[0]["delay_seconds"] == 0


@pytest.mark.parametrize("away", [absent(), LOST])
def test_giving_back_never_hides_why(away: Any) -> None:
    ended(RuntimeError("why"), away)
