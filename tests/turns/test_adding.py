"""The adapter that docs/howto/add-an-adapter.md shows is whole, small, and does what the page says."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from angelia.model.errors import BadRequest
from angelia.model.failure import Reason
from angelia.turns.adapters.port import Adapter, Answered, Failed
from angelia.turns.adapters.registry import KINDS, read
from tests.docs.pages import ROOT, Page
from tests.turns.turn import tools, turn

(BLOCK,) = [block for block in Page(ROOT / "docs/howto/add-an-adapter.md").blocks if block.language == "python"]
MOST_LINES = 40
PARROT = f"""#!{sys.executable}
import json, sys
text = sys.stdin.read()
session = sys.argv[2].partition("=")[2] if sys.argv[2:] else "s1"
if "FAIL" in text:
    sys.exit("HTTP 402: pay first")
print(json.dumps({{"answer": f"{{sys.argv[2:]}} {{text}}", "session": session}}))
"""


@pytest.fixture
def parrot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Adapter:
    """The page's adapter, made from a specification as any other is."""
    module = ModuleType("parrot_of_the_page")
    exec(compile(BLOCK.content, "add-an-adapter.md", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(KINDS, "parrot", module.__name__)
    program = tmp_path / "parrot"
    program.write_text(PARROT)
    program.chmod(0o755)
    lent = tools(tmp_path)
    with pytest.raises(BadRequest, match="missing required field `program`"):
        read({"kind": "parrot"}, lent)
    kind, options = read(json.dumps({"kind": "parrot", "program": str(program)}).encode(), lent)
    return kind.make(options, lent)


def test_it_is_small() -> None:
    lines = [line for line in BLOCK.content.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES


async def test_it_answers_and_goes_on_in_the_same_conversation(parrot: Adapter) -> None:
    told: list[str] = []
    hard = '--help "quotes" 👩‍👩‍👧 \0' + "x" * 200_000
    first = await parrot.run(turn(hard, begun=told.append))
    assert first == Answered(f"[] alice writes: <<{hard}>>", "program")
    assert told == ["s1"]
    second = await parrot.run(turn("more", session="s1"))
    assert second == Answered("['--session=s1'] alice writes: <<more>>", "program")


async def test_it_fails_with_what_was_printed(parrot: Adapter) -> None:
    assert await parrot.run(turn("FAIL")) == Failed("Parrot gave no answer.", "program", output="HTTP 402: pay first\n")


async def test_it_says_when_it_is_not_there(parrot: Adapter, tmp_path: Path) -> None:
    (tmp_path / "parrot").unlink()
    outcome = await parrot.run(turn())
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.began) == (Reason.MISSING_CONFIG, False)
    assert await parrot.recall(turn()) is None
    await parrot.close()
