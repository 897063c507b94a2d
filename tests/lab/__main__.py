"""``python -m tests.lab FOLDER [NAME …]``: every agent of the lab behind a real hub, as a table.

Installs what is missing in FOLDER first (75 s, 2.5 GB), then runs ``test_hub.py`` and the agents' own tests, all
or those whose names are given. Ends with 1 where anything failed. ``--write`` puts the table into docs/agents/lab.md.
"""

import sys
import time
from pathlib import Path

import pytest

from tests.lab.install import install

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "agents" / "lab.md"
MARKS = {"passed": "ok", "failed": "FAILED", "skipped": "-"}


class Table:
    """Collects what came of each test that has an agent."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], str] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest for each phase of each test."""
        name, _, parameters = report.nodeid.rpartition("::")[2].rstrip("]").partition("[")
        if "test_hub.py" not in report.nodeid or (report.when != "call" and report.passed):
            return
        agent, _, word = parameters.partition("-")
        row = name.removeprefix("test_").replace("_", " ") + (f" ({word})" if word else "")
        self.cells[row, agent] = MARKS[report.outcome]
        self.seconds[agent] = self.seconds.get(agent, 0.0) + report.duration
        print(f"\n{agent:12} {row:60} {MARKS[report.outcome]:7} {report.duration:6.1f} s", flush=True)

    def text(self) -> str:
        """The table in Markdown."""
        agents = list(dict.fromkeys(agent for _, agent in self.cells))
        rows = list(dict.fromkeys(row for row, _ in self.cells))
        lines = [f"| | {' | '.join(agents)} |", f"|---|{'---|' * len(agents)}"]
        lines += [f"| {row} | {' | '.join(self.cells.get((row, agent), '') for agent in agents)} |" for row in rows]
        lines += [f"| seconds | {' | '.join(f'{self.seconds[agent]:.0f}' for agent in agents)} |"]
        return "\n".join(lines) + "\n"


def main(words: list[str]) -> int:
    """Run it; the exit code."""
    write = "--write" in words
    folder, *names = [word for word in words if word != "--write"]
    install(Path(folder).resolve())
    table = Table()
    arguments = [str(HERE), "--lab", folder, "-q", "--tb=short", "-o", "addopts=--import-mode=importlib"]
    if names:
        arguments += ["-k", " or ".join(names)]
    code = pytest.main(arguments, plugins=[table])
    text = table.text()
    print("\n" + text)
    if write:
        head = PAGE.read_text("utf-8").partition("<!-- table -->")[0]
        PAGE.write_text(f"{head}<!-- table -->\n\n{time.strftime('%d %B %Y', time.gmtime())}.\n\n{text}", "utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
