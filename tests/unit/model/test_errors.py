"""Every refusal: its code, its status, and whether asking again helps; the same as in wire.md, section 5."""

import inspect

import pytest

from angelia.model import errors
from angelia.model.errors import AngeliaError, BadRequest, CallerError, HubError

# Branches of the tree that nothing raises by themselves.
BRANCHES = {"AngeliaError", "CallerError", "Forbidden", "Conflict", "HubError"}
ALL = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, AngeliaError) and name not in BRANCHES
}
WIRE = """
400 bad_json bad_name bad_request
404 unknown_agent unknown_message not_found
405 method_not_allowed
415 unsupported_type
401 token_required
403 not_your_name not_allowed foreign_origin
421 wrong_host
409 id_reused lease_lost name_taken ask_cycle ambiguous_name runtime_offline
413 too_large
422 hop_limit
429 mailbox_full rate_limited
507 disk_full
503 outcome_unknown stopping unwell
"""
STATUS = {code: int(line.split()[0]) for line in WIRE.strip().splitlines() for code in line.split()[1:]}


def test_every_code_of_the_wire_has_its_error_and_status() -> None:
    assert {kind.code: kind.status for kind in ALL.values()} == STATUS


def test_a_code_means_one_thing() -> None:
    codes = [kind.code for kind in ALL.values()]
    assert len(codes) == len(set(codes))


@pytest.mark.parametrize("name", ALL)
def test_every_error_says_what_it_is_and_whose_fault(name: str) -> None:
    kind = ALL[name]
    assert kind.title
    assert kind.__doc__
    assert issubclass(kind, CallerError) != issubclass(kind, HubError)
    assert (kind.status >= 500) is issubclass(kind, HubError)


def test_asking_again_helps_where_the_hub_is_in_trouble_or_something_is_full_or_away() -> None:
    assert {kind.code for kind in ALL.values() if kind.retry} == {
        "mailbox_full", "rate_limited", "runtime_offline", "disk_full", "outcome_unknown", "stopping", "unwell",
    }  # fmt: skip


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert errors.__doc__ is not None
    assert [name for name in ALL if name not in errors.__doc__] == []


def test_an_error_carries_what_helps() -> None:
    error = errors.TooLarge("The text is over 10 bytes.", limit=10)
    assert (error.detail, str(error), error.extra) == ("The text is over 10 bytes.",) * 2 + ({"limit": 10},)


def test_no_error_repeats_a_token() -> None:
    token = "aVery1Kn0wnToken-of_43_signs-LikeOthers8888"
    refused = BadRequest(f"There is nothing at /v1/agents/{token}/mail.", limit=3)
    assert refused.detail == str(refused) == "There is nothing at /v1/agents/(token)/mail."
    assert token not in repr(refused)
    assert refused.extra == {"limit": 3}
