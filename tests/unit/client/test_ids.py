"""Ids: their form, and that they are never the same."""

import re

from angelia.client.ids import new_id


def test_an_id_is_32_lowercase_hex_digits_laid_out_as_uuid_v7() -> None:
    for _ in range(1000):
        assert re.fullmatch(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}", new_id())


def test_ids_differ() -> None:
    assert len({new_id() for _ in range(10_000)}) == 10_000


def test_the_first_digits_rise_with_time() -> None:
    made = [new_id()[:12] for _ in range(100)]
    assert made == sorted(made)
