"""What is read of an agent's adapter without knowing its kind."""

import pytest

from angelia.protocol.adapters import kind_of, secrets_in, with_kind


def test_the_kind_comes_first_and_is_read_back() -> None:
    spec = with_kind("command", {"argv": ["/bin/cat"]})
    assert spec == b'{"kind":"command","argv":["/bin/cat"]}'
    assert kind_of(spec) == "command"


@pytest.mark.parametrize("spec", [b"", b"{}", b"[]", b'{"kind": 3}', b"\xff"])
def test_what_names_no_kind_is_none(spec: bytes) -> None:
    assert kind_of(spec) == ""


def test_variables_that_hold_secrets_are_those_of_options_that_end_so() -> None:
    assert secrets_in(b'{"kind":"webhook","secret_env":"HOOK","url":"x","n_env":3}') == {"HOOK"}
    assert secrets_in(b"{") == set()
