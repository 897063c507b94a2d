"""The pages of the documentation, taken apart: fenced blocks, what stands in code, links and anchors."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(\S*)[ ]*([^\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: its language, the words after it, its content, and the line it begins in."""

    language: str
    words: frozenset[str]
    content: str
    line: int


class Page:
    """One page."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.relative_to(ROOT).as_posix()
        self.text = path.read_text(encoding="utf-8")
        self.blocks = [
            Block(found[1], frozenset(found[2].split()), found[3], self.text.count("\n", 0, found.start()) + 1)
            for found in FENCE.finditer(self.text)
        ]
        self.prose = FENCE.sub("", self.text)
        self.spans = SPAN.findall(self.prose)

    @property
    def code(self) -> list[str]:
        """All that stands in code: spans and blocks."""
        return [*self.spans, *(block.content for block in self.blocks)]

    @property
    def runs(self) -> list[Block]:
        """The blocks that are run, and the output that is compared, in their order."""
        return [block for block in self.blocks if block.words & {"run", "output"}]

    def links(self) -> Iterator[str]:
        """Where its links go."""
        yield from LINK.findall(SPAN.sub("", self.prose))

    def anchors(self) -> set[str]:
        """What a link may name after its ``#``, as code hosts make it of headings."""
        plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(self.prose)]
        return {heading.strip().replace(" ", "-") for heading in plain}


def pages() -> list[Page]:
    """Every page of the repository."""
    found = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [Page(path) for path in found]
