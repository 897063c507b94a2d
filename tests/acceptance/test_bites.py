"""The rigs and the tests bite: hubs that were broken on purpose are found out (`tests/rigs/broken*.py`).

`test_kills.py` and `test_three_hubs.py` try those of `broken.py` and `broken_links.py`. All take minutes, so that only
the soak runs them; that none has become empty, because the words that it changes are gone, is looked at every time.
"""

import re

import pytest

from tests.acceptance.hub import ROOT
from tests.rigs import broken, broken_links, broken_parts, broken_rigs, broken_tests
from tests.rigs.broken import Fault

CHANGES: dict[str, Fault] = {
    **{f"broken: {name}": fault for name, fault in broken.FAULTS.items()},
    **{f"broken_links: {name}": fault for name, fault in broken_links.FAULTS.items()},
    **{f"broken_rigs: {name}": bite.fault for name, bite in broken_rigs.FAULTS.items()},
    **{f"broken_tests: {name}": bite.fault for name, bite in broken_tests.FAULTS.items()},
    **{
        f"broken_parts: {name}": Fault(part.file, ((part.old, part.new),), ())
        for name, part in broken_parts.FAULTS.items()
    },
}


def test_whatever_is_broken_on_purpose_is_still_there_to_be_broken() -> None:
    gone = [
        f"{name}: {file} does not hold {old!r}"
        for name, fault in CHANGES.items()
        for file, text in [(fault.file, (ROOT / "src/angelia" / fault.file).read_text(encoding="utf-8"))]
        for old, _ in fault.changes
        if old not in text
    ]
    assert gone == []


def test_the_tests_that_must_notice_are_there() -> None:
    for name, bite in broken_tests.FAULTS.items():
        for test in bite.tests:
            file, _, function = test.partition("::")
            assert f"def {function}" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (name, test)


def test_the_page_of_promises_says_of_each_how_it_was_seen_to_bite_and_names_no_change_that_is_not_there() -> None:
    page = (ROOT / "docs/promises.md").read_text(encoding="utf-8")
    names = {name.partition(": ")[2] for name in CHANGES}
    rows = [row.split(" | ") for row in re.findall(r"^\| \d{1,2} \| .*(?= \|$)", page, re.MULTILINE)]
    rigs = set(re.findall(r"^\| ([a-z]+) \| .*`(?:python|pytest) -m", page, re.MULTILINE))
    assert len(rows) == 17
    for number, _, _, bites, long in rows:
        named = set(re.findall('"([^"]+)"', bites))
        assert named or "`acceptance/test_disks.py::" in bites, number
        assert named <= names, number
        assert long.startswith("test only") or set(re.findall("[a-z]+", long)) & rigs, number
    quoted = re.findall('"([^"]+)"', page[page.index("## Rigs") : page.index("Known, and not held")])
    assert set(quoted) - {"Counts"} <= names


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", broken_tests.FAULTS)
def test_a_test_notices_what_it_protects_from(name: str) -> None:
    found, said = broken_tests.is_found(broken_tests.FAULTS[name])
    assert found, said


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", broken_rigs.FAULTS)
def test_the_rigs_of_commits_and_of_the_network_notice(name: str) -> None:
    found, said = broken_rigs.is_found(broken_rigs.FAULTS[name])
    assert found, said


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", broken_parts.FAULTS)
def test_the_machine_the_fuzzer_and_the_contract_notice(name: str) -> None:
    assert broken_parts.is_found(broken_parts.FAULTS[name])
