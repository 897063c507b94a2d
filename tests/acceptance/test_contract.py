"""`/openapi.json` is true: what a real hub answers is what the document says, and nothing is a fault of ours.

schemathesis makes the requests (`tests/rigs/contract.py`); streams, which do not end, are looked at here.
"""

from typing import Any

import pytest

from tests.acceptance.hub import Stream, hub
from tests.rigs.contract import CALLERS, Result, run

SECONDS = 13  # for each kind of caller; `make soak` gives it minutes
LEAST = 20  # requests; many times as many where it is quiet


def found_by(caller: str, seconds: float, seed: int) -> Result:
    with hub() as at:
        found = run(at, caller=caller, seconds=seconds, seed=seed)
    assert found.well, found.said
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("caller", CALLERS)
def test_every_answer_is_one_that_the_document_names(caller: str) -> None:
    """On a machine that is busy with other things it is given longer, so that it makes some requests."""
    if found_by(caller, SECONDS, 1).requests < LEAST:
        assert found_by(caller, 4 * SECONDS, 1).requests >= LEAST


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("caller", CALLERS)
def test_in_minutes_too_every_answer_is_one_that_the_document_names(caller: str) -> None:
    assert found_by(caller, 200, 2).requests >= LEAST


@pytest.mark.parametrize(
    ("path", "admin"),
    [
        ("/subscribe?agent=ann", False),
        ("/v1/agents/ann/stream?ack=manual&window=1", False),
        ("/v1/events?last=5", True),
    ],
)
def test_streams_are_what_the_document_says(path: str, admin: bool) -> None:
    with hub() as at:
        document = at.get("/openapi.json").json
        plain = path.partition("?")[0].replace("/ann/", "/{handle}/")
        told = document["paths"][plain]["get"]["responses"]
        assert list(told["200"]["content"]) == ["text/event-stream"]
        with Stream(at, path, admin=admin):
            pass  # it fails on any other kind
        refused = at.get(path.replace("ann", "-ann").replace("last=5", "last=x"), admin=admin)
        assert refused.status // 100 == 4
        assert refused.code in document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]


def test_a_batch_is_in_the_document_and_so_is_its_answer() -> None:
    """What schemathesis makes up is hardly ever a batch with anything in it."""
    batch = {"messages": [{"to": "hermes", "from": "bob", "text": "x"}, {"to": "-", "from": "bob", "text": "x"}]}
    with hub() as at:
        shapes = at.get("/openapi.json").json["components"]["schemas"]
        answer = at.post("/v1/messages", batch)
    outcomes: list[dict[str, Any]] = answer.json["outcomes"]
    assert set(shapes["BatchOut"]["required"]) == {"outcomes"}
    assert [outcome["status"] for outcome in outcomes] == [201, 400]
    for outcome in outcomes:
        assert set(outcome) <= set(shapes["OutcomeOut"]["properties"])
