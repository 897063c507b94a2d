"""Docs that can fail: what the code has stands in the docs, and the docs name nothing that is not there."""

import re
from importlib import import_module

import pytest

from angelia.cli.main import COMMANDS
from angelia.doors.http.routes import ROUTES
from angelia.model import errors
from angelia.model.delivery import State
from angelia.model.failure import Reason
from angelia.model.limits import Limits
from angelia.settings import FIELDS, called, load
from docs.tables import BRANCHES, SECTION, TABLES, codes, fresh
from tests.docs.pages import ROOT, Page, pages

PAGES = pages()
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
BY_NAME = {page.name: page for page in PAGES}
CODES = set(re.findall(r"`([a-z_]+)`", codes()))
# What a later part of Angelia brings; the docs may name it where they say that it is not there yet.
UNSERVED = ("/openapi.json",)
# Not settings: where the file is; what `listen --exec` tells its command; what a turn tells its program.
VARIABLES = {"ANGELIA_CONFIG", "ANGELIA_FROM", "ANGELIA_ID", "ANGELIA_THREAD", "ANGELIA_ATTEMPT"}
VARIABLES |= {f"ANGELIA_{name}" for name in ("VERIFIED", "INTENT", "KIND", "BODY", "CONVERSATION")}
MADE = ("bench/results.md",)  # by `make bench`
OPTION = re.compile(r"(?<!\w)--[a-z][a-z-]*")
OPTIONS_EVERYWHERE = {"--as", "--hub", "--data-dir", "--json", "--help", "--version"}


# ----------------------------------------------------------------------------------------------- tables out of the code


@EACH_PAGE
def test_a_table_is_what_the_code_says(page: Page) -> None:
    assert fresh(page.text) == page.text, f"{page.name} is behind the code: python docs/tables.py"


def test_every_table_stands_on_one_page() -> None:
    found = [name for page in PAGES for _, name, _ in SECTION.findall(page.text)]
    assert sorted(found) == sorted(TABLES)


def test_every_limit_says_why() -> None:
    assert [row for row in TABLES["bounds"]().splitlines() if row.endswith("|  |")] == []


def test_nothing_raises_what_is_only_there_to_be_caught() -> None:
    names = "|".join(kind.__name__ for kind in BRANCHES)
    raising = re.compile(rf"\braise (?:errors\.)?(?:{names})\(")
    assert [path.name for path in (ROOT / "src").rglob("*.py") if raising.search(path.read_text("utf-8"))] == []


def test_the_tables_hold_everything() -> None:
    """The tables are made by programs, and a program may leave something out."""
    text = "".join(made() for made in TABLES.values())
    names = [f"{route.method} {route.path}" for route in ROUTES]
    names += [state.word for state in State] + [reason.value for reason in Reason]
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.AngeliaError)]
    names += [kind.code for kind in kinds if kind not in BRANCHES]
    names += [*Limits.__dataclass_fields__, *FIELDS, *COMMANDS]
    assert [name for name in names if f"`{name}`" not in text] == []


# ----------------------------------------------------------------------------------- nothing is named that is not there


@EACH_PAGE
def test_a_page_names_only_routes_that_there_are(page: Page) -> None:
    paths = [(route.method, re.compile(re.sub(r"\{\w+\}", "[^/]+", route.path))) for route in ROUTES]
    for text in page.code:
        for method, path in re.findall(r"\b(GET|POST|PUT|DELETE) (/[^\s`?'\",]*)", text):
            known = path in UNSERVED or any(method == one and each.fullmatch(path) for one, each in paths)
            assert known, f"{page.name} names {method} {path}, which nothing serves"


@EACH_PAGE
def test_a_page_names_only_commands_that_there_are(page: Page) -> None:
    sessions = [block.content for block in page.blocks if block.language in ("console", "sh")]
    for text in [*page.spans, *sessions]:
        for command in re.findall(r"(?:^|[\s$;|(])angelia (?:--\w[\w-]* \S+ )*([a-z]+)\b", text):
            assert command in {*COMMANDS, "help", "sned"}, f"{page.name} names angelia {command}"


@EACH_PAGE
def test_a_page_names_only_variables_that_are_read(page: Page) -> None:
    known = {called(name)[1] for name in FIELDS} | VARIABLES
    for variable in re.findall(r"\bANGELIA_[A-Z_]+\b", page.text):
        limit = variable.removeprefix("ANGELIA_LIMITS_").lower()
        assert variable in known or limit in Limits.__dataclass_fields__, f"{page.name} names {variable}"


@EACH_PAGE
def test_a_page_names_only_codes_that_there_are(page: Page) -> None:
    for code in re.findall(r"\"code\":\s*\"(\w+)\"|\b[45]\d\d `([a-z_]+)`", page.text):
        assert "".join(code) in CODES, f"{page.name} names the code {''.join(code)}"


@EACH_PAGE
def test_a_page_names_only_files_that_there_are(page: Page) -> None:
    if page.name.startswith("docs/adr/"):
        return  # a decision may name what it decided against, or what comes later
    for name in page.spans:
        looks_like_one = re.fullmatch(r"[\w.-]+(?:/[\w.-]+)+/?|\w+\.(?:py|sql|md)", name)
        if looks_like_one and not name.startswith("application/") and name not in MADE and "NAME" not in name:
            places = [ROOT, ROOT / "src/angelia", ROOT / "docs", page.path.parent, ROOT / "src/angelia/storage/sqlite"]
            assert any((place / name).exists() for place in places), f"{page.name} names {name}"


# ----------------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_options_are_those_of_its_section(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = import_module(COMMANDS[command][0]).run
    with pytest.raises(SystemExit):
        run(["--help"], load({}, {"HOME": str(ROOT)}))
    own = capsys.readouterr().out.partition("everywhere:")[0]
    rows = re.findall(r"^\| (`--.*?) \|", _section("docs/cli.md", command), re.MULTILINE)
    assert set(OPTION.findall(" ".join(rows))) == set(OPTION.findall(own)) - OPTIONS_EVERYWHERE


def _section(name: str, heading: str) -> str:
    found = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", BY_NAME[name].text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{name} has no section {heading}"
    return found[1]


# -------------------------------------------------------------------------------------------------------------- the map


def test_the_layout_names_every_part() -> None:
    layout = "".join(block.content for block in BY_NAME["ARCHITECTURE.md"].blocks)
    words = set(re.findall(r"[\w.-]+/?", layout))
    folders = [path for path in (ROOT / "src/angelia").rglob("*") if path.is_dir() and path.name != "__pycache__"]
    assert [path.name for path in folders if f"{path.name}/" not in words] == []
    files = {path.name for path in ROOT.rglob("*.*") if ".venv" not in path.parts}
    named = [word for word in words if word.endswith((".py", ".sql"))]
    assert [word for word in named if word not in files] == []
    parts = [path for folder in ("model", "protocol", "bus") for path in (ROOT / "src/angelia" / folder).glob("*.py")]
    assert [path.name for path in parts if path.stem != "__init__" and path.name not in words] == []


@EACH_PAGE
def test_links_lead_somewhere(page: Page) -> None:
    for link in page.links():
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.path.parent / path).resolve() if path else page.path
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        if anchor:
            there = Page(target).anchors()
            assert anchor in there, f"{page.name} links to {link}; {sorted(there)}"


def test_decisions_are_numbered() -> None:
    paths = sorted((ROOT / "docs/adr").glob("*.md"))
    numbers = [path.name[:4] for path in paths]
    assert len(set(numbers)) == len(numbers)
    for path in paths:
        assert path.read_text(encoding="utf-8").startswith(f"# {int(path.name[:4])}. "), path.name
