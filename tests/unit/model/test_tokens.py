"""What a token looks like: each that is made is found wherever it stands, and what people and the hub write is not."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.bus.leases import token_for
from angelia.bus.system import SystemIds
from angelia.model.tokens import CUT, HIDDEN, is_like_a_token, masked, written

AROUND = ["{}", "'{}'", "/v1/agents/{}/inbox", "é{}é", "?token={}&x=1", "Bearer {}.", "{}\n{}", "a@{}", '{{"{}":1}}']
SECRETS = st.binary(min_size=32, max_size=32)


def tokens() -> list[str]:
    return [
        *(written(SystemIds().secret()) for _ in range(200)),
        os.urandom(32).hex(),
        token_for(os.urandom(32), 7, 12),
    ]


@pytest.mark.parametrize("around", AROUND)
def test_every_token_is_found_wherever_it_stands(around: str) -> None:
    for token in tokens():
        assert masked(around.format(token, token)) == around.format(HIDDEN, HIDDEN)


def test_those_that_could_be_names_are_known_for_tokens() -> None:
    assert all(is_like_a_token(token) for token in tokens()[:-1])


def test_one_that_was_cut_as_errors_cut_is_found_too() -> None:
    assert all(masked(f"'{token[:CUT]}' is") == f"'{HIDDEN}' is" for token in (SAMPLE, "ab01" * 16))


SAMPLE = "aVery1Kn0wnToken-of_43_signs-LikeOthers8888"


@pytest.mark.parametrize(
    "text",
    [
        "", "ann", "0197f0c2a4b17c3e8d21f6a09b5e4c79", "a" * 43, "x" * 64, "7" * 64, "f" * 64, "Ann-7", SAMPLE[:32],
        "the-agent-that-builds-the-documentation-on-box-7", "THE_AGENT_THAT_BUILDS_THE_DOCUMENTATION_ON_BOX_7",
        "/home/Ann/projects/2026/angelia/data/angelia.db", "2026-11-30T10:00:00.000Z", "7-12-abc", SAMPLE[:-20],
    ],
)  # fmt: skip
def test_what_people_and_the_hub_write_is_none(text: str) -> None:
    assert masked(f"'{text}' is there.") == f"'{text}' is there."
    assert not is_like_a_token(text)


@given(SECRETS)
def test_bytes_are_written_without_what_a_header_or_a_path_could_not_carry(secret: bytes) -> None:
    token = written(secret)
    assert len(token) == 43
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_one_that_is_glued_to_a_word_is_found_too() -> None:
    for token in tokens():
        for glued in (f"_{token}", f"agent-{token}", f"{token}-{token}", f"x{token}"):
            assert token[:12] not in masked(glued)
