"""The shapes of the seed's answers and of the short ones: what is always there, and what only where it is so."""

from typing import Any

from msgspec import UNSET, json

from angelia.protocol.answers import BatchOut, BroadcastOut, HealthOut, OutcomeOut, RefusedOut, SelfTest

IDENTITY: dict[str, Any] = {
    "product": "angelia", "version": "1", "instance": "i", "epoch": "e", "pid": 1, "port": 2, "since": "s",
    "data_dir": "d", "durability": "full",
}  # fmt: skip


def test_a_broadcast_says_of_repeats_and_refusals_only_where_there_are_some() -> None:
    plain = BroadcastOut(delivered=False, stored=True, id="1", to=["ann"], seq=3)
    assert json.decode(json.encode(plain)) == {"delivered": False, "stored": True, "id": "1", "to": ["ann"], "seq": 3}
    full = BroadcastOut(
        delivered=False, stored=True, id="1", to=[], seq=3, duplicate=True, refused=[RefusedOut("bob", "mailbox_full")]
    )
    found = json.decode(json.encode(full))
    assert found["duplicate"] is True
    assert found["refused"] == [{"to": "bob", "code": "mailbox_full"}]


def test_health_names_the_hub_first_and_what_fails_only_where_something_does() -> None:
    well = HealthOut(**IDENTITY, status="ok", self_test=SelfTest("t", 1.5))
    found = json.decode(json.encode(well))
    assert found == IDENTITY | {"status": "ok", "self_test": {"at": "t", "milliseconds": 1.5}}
    assert list(found)[:9] == list(IDENTITY)
    ill = HealthOut(**IDENTITY, status="unwell", self_test=SelfTest("t", 1.5), failing="the write", code="unwell")
    assert json.decode(json.encode(ill))["failing"] == "the write"


def test_an_outcome_of_a_batch_is_what_was_sent_or_the_problem() -> None:
    outcomes = BatchOut([OutcomeOut(status=400, problem={"code": "bad_name"}, sent=UNSET)])
    assert json.decode(json.encode(outcomes)) == {"outcomes": [{"status": 400, "problem": {"code": "bad_name"}}]}
