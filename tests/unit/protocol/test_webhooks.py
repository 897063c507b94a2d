"""Posts are signed as Standard Webhooks 1.0 says, and what was changed, is old or came from others is not believed."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia.protocol.webhooks import TOLERANCE_SECONDS, NotSigned, headers, key_of, sign, verify

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(32)).decode()
NOW = 1_800_000_000
BODY = b'{"type":"message"}'


def test_a_signature_is_that_of_the_standards_own_libraries() -> None:
    """The example that the reference libraries test themselves with."""
    signature = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_post_carries_the_headers_of_the_standard_and_of_svix() -> None:
    found = headers([SECRET, OTHER], "0af3", NOW, BODY)
    signatures = f"{sign(SECRET, '0af3', NOW, BODY)} {sign(OTHER, '0af3', NOW, BODY)}"
    assert found == {
        "webhook-id": "0af3", "webhook-timestamp": str(NOW), "webhook-signature": signatures,
        "svix-id": "0af3", "svix-timestamp": str(NOW), "svix-signature": signatures,
    }  # fmt: skip


@given(body=st.binary(), id=st.from_regex(r"[0-9a-f]{32}", fullmatch=True), at=st.integers(0, 10**12))
def test_what_is_signed_is_believed(body: bytes, id: str, at: int) -> None:
    assert verify([SECRET], headers([SECRET], id, at, body), body, at) == id


@pytest.mark.parametrize("prefix", ["webhook", "svix"])
def test_either_set_of_names_is_enough(prefix: str) -> None:
    found = {name: value for name, value in headers([SECRET], "a", NOW, BODY).items() if name.startswith(prefix)}
    assert verify([SECRET], found, BODY, NOW) == "a"


def test_while_a_secret_is_replaced_both_sides_may_have_two() -> None:
    assert verify([OTHER], headers([SECRET, OTHER], "a", NOW, BODY), BODY, NOW) == "a"
    assert verify([SECRET, OTHER], headers([OTHER], "a", NOW, BODY), BODY, NOW) == "a"


def test_a_signature_of_a_kind_that_we_do_not_know_is_passed_over() -> None:
    found = headers([SECRET], "a", NOW, BODY)
    found["webhook-signature"] = "v1a,AAAA " + found["webhook-signature"] + " v9,zzz"
    assert verify([SECRET], found, BODY, NOW) == "a"


@pytest.mark.parametrize("late", [TOLERANCE_SECONDS, -TOLERANCE_SECONDS])
def test_clocks_may_differ_a_little(late: int) -> None:
    assert verify([SECRET], headers([SECRET], "a", NOW, BODY), BODY, NOW + late) == "a"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"webhook-id": "b"}, "no signature"),
        ({"webhook-timestamp": str(NOW + 1)}, "no signature"),
        ({"webhook-timestamp": str(NOW - TOLERANCE_SECONDS - 1)}, "more than 300 s"),
        ({"webhook-timestamp": str(NOW + TOLERANCE_SECONDS + 1)}, "more than 300 s"),
        ({"webhook-timestamp": "soon"}, "no number"),
        ({"webhook-timestamp": "²"}, "no number"),
        ({"webhook-timestamp": "9" * 5000}, "no number"),
        ({"webhook-timestamp": ""}, "no number"),
        ({"webhook-signature": ""}, "no signature"),
        ({"webhook-signature": "v1,"}, "no signature"),
        ({"webhook-signature": "é"}, "no signature"),
        ({"webhook-signature": sign(OTHER, "a", NOW, BODY)}, "no signature"),
        ({"webhook-signature": sign(SECRET, "a", NOW, BODY).removeprefix("v1,")}, "no signature"),
        ({"webhook-id": "a.b"}, "without a dot"),
        ({"webhook-id": ""}, "without a dot"),
    ],
)
def test_what_was_changed_or_is_old_is_not_believed(changed: dict[str, str], says: str) -> None:
    with pytest.raises(NotSigned, match=says):
        verify([SECRET], {**headers([SECRET], "a", NOW, BODY), **changed}, BODY, NOW)


def test_another_body_is_not_believed() -> None:
    with pytest.raises(NotSigned):
        verify([SECRET], headers([SECRET], "a", NOW, BODY), BODY + b" ", NOW)


def test_the_two_sets_of_names_are_not_mixed() -> None:
    found = headers([SECRET], "a", NOW, BODY)
    del found["webhook-signature"]
    with pytest.raises(NotSigned):
        verify([SECRET], found, BODY, NOW)
    with pytest.raises(NotSigned, match="no webhook-id"):
        verify([SECRET], {}, BODY, NOW)


def test_the_parts_of_what_is_signed_cannot_be_shifted() -> None:
    """With a dot in an id, the same bytes could be signed for another id and time."""
    for id in ("1.2", "", "a\n", "é"):
        with pytest.raises(ValueError, match="without a dot"):
            sign(SECRET, id, NOW, BODY)


@pytest.mark.parametrize("size", [24, 64])
def test_a_key_may_have_the_standards_sizes(size: int) -> None:
    assert key_of("whsec_" + base64.b64encode(bytes(size)).decode()) == bytes(size)


@pytest.mark.parametrize(
    "secret",
    [
        "", "whsec_", base64.b64encode(bytes(32)).decode(), "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(), "whsec_" + "!" * 44, "whsk_" + SECRET, "whsec_é" * 10,
        "whsec_" + base64.b64encode(bytes(32)).decode()[:-1],
    ],
)  # fmt: skip
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes") as refused:
        key_of(secret)
    assert len(secret) < 10 or secret not in str(refused.value)
