"""Nothing that a peer wrote may act on a terminal or hide from a reader; plain text of any language stays as it is."""

import io
import sys
import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from angelia.cli.show import Colour, ago, colour, table, visible

JOINERS = "\u200c\u200d"
SELECTORS = "\ufe0e\ufe0f"
FAMILY = "👨\u200d👩\u200d👧"
HEART = "❤\ufe0f\u200d🔥"
PERSIAN = "می\u200cخوبم"
SINHALA = "ක්\u200dෂ"

# Code points that Unicode calls default ignorable although their category is that of a letter, mark or nothing yet.
DRAWN_AS_NOTHING = [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2065, 0x3164, 0xFFA0]
DRAWN_AS_NOTHING += [0xFFF0, *range(0xFE00, 0xFE10), 0xE0080, *range(0xE0100, 0xE01F0), 0xE0FFF]

BIDI = [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C]
TAGS = [*range(0xE0000, 0xE0080)]
NO_CHARACTERS = [0xFDD0, 0xFDEF, 0xFFFE, 0xFFFF, 0x1FFFE, 0x10FFFF]

CONTROLS = ["\x1b", "\x1b[2J", "\x9b", "\r", "\n", "\t", "\r\n", "\u202e", "\u2028", "\ud800", "\u3164", "\U000e0041"]
LETTERS = ["\\", "a", "1", "\u20e3", "😀", "❤", "م", "ක"]
NASTY = st.sampled_from([*JOINERS, *SELECTORS, *CONTROLS, *LETTERS])
TEXTS = st.lists(NASTY | st.text(max_size=4), max_size=12).map("".join)


def hidden(code: int) -> bool:
    """As Unicode, in this Python's version, has it: no reader can see it, or a terminal may act on it."""
    return unicodedata.category(chr(code)) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def test_every_character_that_unicode_hides_is_escaped_and_no_other() -> None:
    named = {*DRAWN_AS_NOTHING, *BIDI, *TAGS, *NO_CHARACTERS}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character in "\n\r\t":
            continue
        shown = visible(character)
        if hidden(code) or code in named:
            assert shown == escape(code)
        elif shown != character:
            assert unicodedata.category(character) == "Cn", f"{escape(code)} is a character of this Unicode"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),
        ("\x7f\x00\x08", r"\x7f\x00\x08"),
        ("user\u202egpj.exe", r"user\u202egpj.exe"),
        ("a\u200bb", r"a\u200bb"),
        ("ad\u200dmin", r"ad\u200dmin"),
        ("ad\u200cmin", r"ad\u200cmin"),
        ("\ufeffa", r"\ufeffa"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("a\ud83d", r"a\ud83d"),
        ("\U000e0068\U000e0069", r"\U000e0068\U000e0069"),
        ("soft\xadhyphen", r"soft\xadhyphen"),
        ("a\ufe0f", r"a\ufe0f"),
        ("😀\ufe00\U000e0101", r"😀\ufe00\U000e0101"),
        ("a\rb", r"a\rb"),
        ("a\r\r\nb", "a\\r\nb"),
        ("a\r\nb", "a\nb"),
        ("a\n\tb", "a\n\tb"),
        ("a\n\x1bb\n", "a\n\\x1bb\n"),
    ],
)
def test_what_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\n\tb", r"a\n\tb"), ("a\r\nb", r"a\r\nb"), ("é\n", r"é\n"), ("a b", "a b"), ("", "")],
)
def test_on_one_line_nothing_ends_it(text: str, shown: str) -> None:
    assert visible(text, multiline=False) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain ~!{}",
        "perché è così, «sì»\u00a0!",
        "日本語 한국어 ไทย",
        "שלום עליכם",
        "Zażółć e\u0301",
        "\\x1b stays",
        FAMILY,
        HEART,
        "1\ufe0f\u20e3 #\ufe0f\u20e3",
        "✈\ufe0e ☀\ufe0f 👍🏽 🏳\ufe0f\u200d🌈 🇮🇹",
        PERSIAN,
        SINHALA,
        "\ue0b0 a font's own sign",
    ],
)
def test_what_stays(text: str) -> None:
    assert visible(text) == text
    assert visible(text, multiline=False) == text


@pytest.mark.parametrize("joiner", JOINERS)
@pytest.mark.parametrize(
    "around", ["{}", "{}م", "م{}", "م{} م", "a{}م", "م{}a", "م{}{}م", "😀{}a", "a{}😀", "😀{}{}😀", "a\ufe0f{}😀"]
)
def test_a_joiner_between_what_does_not_join_is_escaped(joiner: str, around: str) -> None:
    assert joiner not in visible(around.replace("{}", joiner))


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("around", ["{}", "a{}", "1{}", "1{}a", " {}", "م{}", "日{}"])
def test_a_selector_that_selects_nothing_is_escaped(selector: str, around: str) -> None:
    assert selector not in visible(around.replace("{}", selector))


def test_a_run_of_selectors_carries_no_hidden_text() -> None:
    assert visible("😀" + "\ufe0f\ufe0e" * 8) == "😀\ufe0f" + r"\ufe0e" + r"\ufe0f\ufe0e" * 7


@settings(deadline=None)
@given(TEXTS, st.booleans())
@example("a\ufe0f\u200d😀", True)
@example("😀\u200d\u200d😀", False)
@example("\r\r\n\n", True)
def test_no_text_gets_past(text: str, multiline: bool) -> None:
    shown = visible(text, multiline=multiline)
    for character in shown:
        if not (multiline and character in "\n\t"):
            assert not hidden(ord(character)) or character in JOINERS
    shown.encode()  # a lone surrogate would break the terminal's own encoder
    assert visible(shown, multiline=multiline) == shown


def test_a_mebibyte_takes_no_time_to_speak_of() -> None:
    for text in ["plain text\n" * 100_000, "perché no? " * 100_000, "\x1b[31m" * 200_000, "😀\u200d" * 500_000]:
        start = time.monotonic()
        visible(text)
        assert time.monotonic() - start < 10  # a second at most; quadratic work would take hours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_only_on_a_terminal_and_only_when_wanted() -> None:
    assert colour("a", "red", Terminal(), enabled=True) == "\x1b[31ma\x1b[0m"
    assert colour("a", "red", Terminal(), enabled=False) == "a"
    assert colour("a", "red", io.StringIO(), enabled=True) == "a"


@pytest.mark.parametrize("name", ["red", "green", "yellow", "blue", "grey", "bold"])
def test_a_text_cannot_end_its_colour(name: Colour) -> None:
    assert colour("a\x1b[0mb", name, Terminal(), enabled=True).count("\x1b") == 2


def test_a_table_is_aligned() -> None:
    shown = table(
        [["hermes", "online", "3 min"], ["日本", "perche\u0301", ""], ["a", "", "12 d"]], ["NAME", "STATE", "SEEN"]
    )
    assert shown.splitlines() == [
        "NAME    STATE   SEEN",
        "hermes  online  3 min",
        "日本    perche\u0301",
        "a               12 d",
    ]


def test_a_table_of_no_rows_has_its_headers() -> None:
    assert table([], ["NAME", "STATE"]) == "NAME  STATE"


def test_a_cell_cannot_forge_a_row() -> None:
    assert table([["a\nroot  admin", "x\x1b[1A"]], ["NAME", "ROLE"]).splitlines()[1:] == [r"a\nroot  admin  x\x1b[1A"]


@pytest.mark.parametrize("row", [["a"], ["a", "b", "c"]])
def test_a_row_of_another_length_is_refused(row: list[str]) -> None:
    with pytest.raises(ValueError, match="argument"):
        table([row], ["NAME", "STATE"])


SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (-5 * DAY, "now"),
        (0, "now"),
        (SECOND - 1, "now"),
        (SECOND, "1 s"),
        (MINUTE - 1, "59 s"),
        (MINUTE, "1 min"),
        (3 * MINUTE + 59 * SECOND, "3 min"),
        (HOUR - 1, "59 min"),
        (HOUR, "1 h"),
        (2 * DAY - 1, "47 h"),
        (2 * DAY, "2 d"),
        (400 * DAY, "400 d"),
    ],
)
def test_ago(ms: int, said: str) -> None:
    assert ago(ms) == said
