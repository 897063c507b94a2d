"""What the pages show is what happens: every block that is marked as runnable is run against a hub of its own.

CONTRIBUTING.md explains the marks.
"""

import pytest

from tests.acceptance.hub import hub
from tests.docs.console import Reader, Step, matches, steps
from tests.docs.pages import Page, pages

RUNNABLE = [page for page in pages() if page.runs]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_a_page_does_what_it_says(page: Page) -> None:
    with hub() as running, Reader(running) as reader:
        reader.follow(page.runs)


def test_the_readme_and_the_wire_are_run() -> None:
    """So that a lost mark does not make the check pass."""
    assert {page.name for page in RUNNABLE} >= {
        "README.md", "docs/cli.md", "docs/settings.md", "docs/protocol/seed.md", "docs/protocol/native.md",
        "docs/protocol/streams.md", "docs/protocol/identity.md", "docs/protocol/errors.md", "docs/protocol/limits.md",
        "docs/protocol/turns.md", "docs/protocol/gateway.md", "docs/protocol/connections.md",
    }  # fmt: skip


def test_a_session_is_read_as_a_person_reads_it() -> None:
    assert steps('$ curl \\\n    -d 1 x\n{"a":1}\n$ cat <<E\n> line\n> E\nline\n\nmore\n$ true\n') == [
        Step("curl \\\n    -d 1 x", '{"a":1}'),
        Step("cat <<E\nline\nE", "line\n\nmore"),
        Step("true", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "came", "fits"),
    [
        ('{"id":"…",\n "state":"queued"}', '{"id":"0af3","state":"queued"}\n', True),
        ("…", "", True),
        ('{"state":"queued"}', '{"state":"leased"}', False),
        ("a…c", "abcd", False),
        ("a.c", "abc", False),
    ],
)
def test_output_is_compared(shown: str, came: str, fits: bool) -> None:
    assert matches(shown, came) is fits
