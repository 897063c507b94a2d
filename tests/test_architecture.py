"""The limits of ARCHITECTURE.md, checked: sizes, names, twins, and what may not stand where.

A check is a function from the root of a checkout to complaints, each about one file. So every check is also run on a
small offending tree (`OFFENCES`): one that cannot fail is no check. An exception is one line in `EXCEPTIONS` with its
reason, and goes when it is no longer needed. Which layer may import which is import-linter's part (pyproject.toml).
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

Complaint = tuple[str, str]  # the file, relative to the root; what is wrong
Check = Callable[[Path], Iterator[Complaint]]

CODE = ("src", "bench", "examples")
SOURCE_LINES, FUNCTION_LINES, TEST_LINES = 400, 60, 800
DOCUMENT_LINES = {"ARCHITECTURE.md": 200, "CONTRIBUTING.md": 130, "docs/adr/*.md": 80}
TWINNED = ("model", "protocol", "bus")
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
# Tests that must give the same answer every time: time stands still unless the test moves it, and nothing is faked
# behind the back of the code. Acceptance tests have real clocks and real processes.
STILL_TESTS = ("tests/unit", "tests/conformance")
SLEEPERS = {"time.sleep", "asyncio.sleep", "anyio.sleep"}
MOCKERS = {"unittest.mock", "mock", "pytest_mock"}

# Statements only: control words (PRAGMA, BEGIN, SAVEPOINT, COMMIT) are the store's business and may stand in code.
SQL = re.compile(
    r"\s*(SELECT\s|(?i:select\s.*\sfrom\s|insert\s+(or\s+\w+\s+)?into\s|replace\s+into\s|update\s+\w+\s+set\s|delete\s+from\s"
    r"|(create|drop|alter)\s+(temp(orary)?\s+|unique\s+|virtual\s+)?(table|index|trigger|view)\s|with\s+(recursive\s+)?\w+.*\sas\s*\())",
    re.DOTALL,
)
# Put together from parts, so that this file does not name what it forbids.
HOSTS = tuple(
    ".".join(parts) for parts in (("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org"))
)
MACHINE_FOLDERS = ("work", "root")
ELSEWHERE = re.compile(r"(?<![\w./~-])/(?:" + "|".join(MACHINE_FOLDERS) + r")/\w")
UNREAD = {"__pycache__", "node_modules", "build", "dist"}  # made by tools, not written by anyone

# (check, file): reason. Sizes, names and the rest all stand here, and nowhere else.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("twins", "src/angelia/bus/ports.py"): "Protocols have no behaviour; tests/conformance tests whatever fills them",
}


# ----------------------------------------------------------------------------------------------------- reading the tree


def files(root: Path, pattern: str, *folders: str) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((root / folder).rglob(pattern)):
            if path.is_file() and not UNREAD.intersection(path.relative_to(root).parts):
                yield path


def everything(root: Path) -> Iterator[Path]:
    """Each file of the checkout. Folders with a dot are some tool's own, but for the one that CI reads."""
    for path in files(root, "*", "."):
        if not any(part.startswith(".") and part != ".ci" for part in path.relative_to(root).parts[:-1]):
            yield path


def name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imported(module: ast.Module) -> Iterator[tuple[str, str]]:
    """(the name it has here, what it is in full) for every import in the file."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname or alias.name), alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield (alias.asname or alias.name), f"{node.module}.{alias.name}"


def in_full(node: ast.expr, names: dict[str, str]) -> str:
    """`sleep` or `t.sleep` → `time.sleep`, as far as the file's imports tell."""
    if isinstance(node, ast.Attribute):
        return f"{in_full(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


# -------------------------------------------------------------------------------------------------------------- checks


def sizes(root: Path) -> Iterator[Complaint]:
    limits = [(path, SOURCE_LINES) for path in [*files(root, "*.py", *CODE), *files(root, "*.sql", *CODE)]]
    limits += [(path, TEST_LINES) for path in files(root, "*.py", "tests")]
    limits += [(path, limit) for pattern, limit in DOCUMENT_LINES.items() for path in sorted(root.glob(pattern))]
    for path, limit in limits:
        if (count := lines(path)) > limit:
            yield name(root, path), f"has {count} lines, {limit} at most: split it by reason to change"


def functions(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", *CODE, "tests"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or node.lineno) - node.lineno + 1
                if count > FUNCTION_LINES:
                    yield name(root, path), f"{node.name} has {count} lines, {FUNCTION_LINES} at most"


def twins(root: Path) -> Iterator[Complaint]:
    for layer in TWINNED:
        for path in files(root, "*.py", f"src/angelia/{layer}"):
            inner = path.relative_to(root / "src/angelia")
            twin = Path("tests/unit", inner.parent, f"test_{inner.name}")
            if path.name != "__init__.py" and not (root / twin).is_file():
                yield name(root, path), f"has no test file {twin}"


def names(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", *CODE, "tests"):
        parts = [*path.relative_to(root).parts[:-1], path.stem.removeprefix("test_")]
        if empty := EMPTY_NAMES.intersection(parts):
            yield name(root, path), f"`{empty.pop()}` says nothing about what is in it"


def docstrings(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", "src"):
        if not ast.get_docstring(tree(path)):
            yield name(root, path), "does not begin by saying what its job is"


def sql(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", "src"):
        module = tree(path)
        prose = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
        for node in ast.walk(module):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in prose
                and SQL.match(node.value)
            ):
                yield name(root, path), f"line {node.lineno} holds SQL, which has its own .sql files in storage/sqlite"


def plain_nouns(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", "src/angelia/model"):
        for _, full in imported(tree(path)):
            if full.partition(".")[0] not in {"angelia", *sys.stdlib_module_names}:
                yield name(root, path), f"imports {full}; nouns are made of the standard library alone"


def stillness(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", *STILL_TESTS):
        module = tree(path)
        known = dict(imported(module))
        for node in ast.walk(module):
            if isinstance(node, ast.Call) and in_full(node.func, known) in SLEEPERS:
                yields = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
                if not yields:
                    yield name(root, path), f"line {node.lineno} sleeps; move the test's clock instead"


def fakes(root: Path) -> Iterator[Complaint]:
    for path in files(root, "*.py", *STILL_TESTS):
        module = tree(path)
        for _, full in imported(module):
            if any(full == mocker or full.startswith(f"{mocker}.") for mocker in MOCKERS):
                yield name(root, path), f"imports {full}; write a fake that fills the port"
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and in_full(node, {}) == "monkeypatch.setattr":
                yield name(root, path), f"line {node.lineno} patches; write a fake that fills the port"


def places(root: Path) -> Iterator[Complaint]:
    for path in everything(root):
        text = path.read_bytes().decode("utf-8", "replace")
        for host in HOSTS:
            if host in text.lower():
                yield name(root, path), f"names the package host {host}; whoever installs chooses it"
        if match := ELSEWHERE.search(text):
            yield name(root, path), f"names a folder of somebody's own machine: {match[0]}…"


CHECKS: tuple[Check, ...] = (
    sizes, functions, twins, names, docstrings, sql, plain_nouns, stillness, fakes, places,
)  # fmt: skip

# --------------------------------------------------------------------------------------------------------------- tests

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * FUNCTION_LINES
OFFENCES: list[tuple[Check, str, str]] = [
    (sizes, "src/angelia/long.py", "x = 1\n" * (SOURCE_LINES + 1)),
    (sizes, "src/angelia/storage/long.sql", "--\n" * (SOURCE_LINES + 1)),
    (sizes, "tests/unit/test_long.py", "x = 1\n" * (TEST_LINES + 1)),
    (sizes, "ARCHITECTURE.md", "-\n" * 201),
    (sizes, "CONTRIBUTING.md", "-\n" * 131),
    (sizes, "docs/adr/0099-long.md", "-\n" * 81),
    (functions, "src/angelia/f.py", LONG_FUNCTION),
    (functions, "tests/unit/test_f.py", "async " + LONG_FUNCTION),
    (twins, "src/angelia/model/alone.py", '"""x."""'),
    (twins, "src/angelia/bus/inner/alone.py", '"""x."""'),
    (names, "src/angelia/bus/utils.py", '"""x."""'),
    (names, "src/angelia/common/thing.py", '"""x."""'),
    (names, "tests/unit/test_helpers.py", '"""x."""'),
    (docstrings, "src/angelia/silent.py", "# a comment is not enough\n"),
    (sql, "src/angelia/bus/q.py", 'Q = "SELECT 1"'),
    (sql, "src/angelia/storage/sqlite/q.py", 'run(f"insert into t values ({x})")'),
    (sql, "src/angelia/storage/sqlite/q.py", 'run("""\n  create unique index a on b(c)""")'),
    (sql, "src/angelia/storage/sqlite/q.py", 'run("UPDATE t SET a = 1")'),
    (sql, "src/angelia/storage/sqlite/q.py", 'run("with a as (values (1)) delete from b")'),
    (plain_nouns, "src/angelia/model/m.py", "import msgspec"),
    (stillness, "tests/unit/test_s.py", "import time as t\nt.sleep(0.1)"),
    (stillness, "tests/conformance/test_s.py", "from asyncio import sleep\nasync def f(): await sleep(1)"),
    (fakes, "tests/unit/test_m.py", "from unittest import mock"),
    (fakes, "tests/conformance/test_m.py", "def test_x(monkeypatch): monkeypatch.setattr('a.b', 1)"),
    *((places, "requirements/any.lock", f"--index-url https://{host}/simple") for host in HOSTS),
    *((places, ".ci/run", f"cd /{folder}/thing") for folder in MACHINE_FOLDERS),
]
FINE: list[tuple[Check, str, str]] = [
    (
        sql,
        "src/angelia/storage/sqlite/q.py",
        '"""Select what is due from the log."""\nrun("BEGIN IMMEDIATE")\nrun("PRAGMA x")',
    ),
    (sql, "src/angelia/cli/q.py", 'print("Update the token", "Create a room", "delete", "Selected: 3")'),
    (
        plain_nouns,
        "src/angelia/model/m.py",
        "import re\nfrom angelia.model.errors import AngeliaError\nfrom . import limits",
    ),
    (stillness, "tests/unit/test_s.py", "import asyncio\nasync def f(): await asyncio.sleep(0); clock.sleep(5)"),
    (places, "docs/any.md", "see ~/" + "work/x, docs/" + "root/x and https://example.org/" + "work/x"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tree_keeps_the_limit(check: Check) -> None:
    complaints = [f"{path}: {text}" for path, text in check(ROOT) if (check.__name__, path) not in EXCEPTIONS]
    assert not complaints, "\n" + "\n".join(complaints)


@pytest.mark.parametrize(("check", "path", "content"), OFFENCES)
def test_the_check_can_fail(check: Check, path: str, content: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(content, encoding="utf-8")
    assert [complaint[0] for complaint in check(tmp_path)] == [path]


@pytest.mark.parametrize(("check", "path", "content"), FINE)
def test_the_check_lets_pass_what_is_fine(check: Check, path: str, content: str, tmp_path: Path) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(content, encoding="utf-8")
    assert list(check(tmp_path)) == []


def test_every_exception_is_still_needed_and_says_why() -> None:
    found = {(check.__name__, path) for check in CHECKS for path, _ in check(ROOT)}
    assert [key for key, reason in EXCEPTIONS.items() if key not in found or not reason] == []


def test_there_is_something_to_check() -> None:
    """So that a moved folder does not make every check pass."""
    assert all((ROOT / "src/angelia" / layer).is_dir() for layer in TWINNED)
