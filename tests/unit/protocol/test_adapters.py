"""What is read of an agent's adapter without knowing its kind."""

import pytest

from angelia.protocol.adapters import kind_of, with_kind


def test_the_kind_comes_first_and_is_read_back() -> None:
    spec = with_kind("command", {"argv": ["/bin/cat"]})
    assert spec == b'{"kind":"command","argv":["/bin/cat"]}'
    assert kind_of(spec) == "command"


@pytest.mark.parametrize("spec", [b"", b"{}", b"[]", b'{"kind": 3}', b"\xff"])
def test_what_names_no_kind_is_none(spec: bytes) -> None:
    assert kind_of(spec) == ""
