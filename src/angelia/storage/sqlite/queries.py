"""The statements of the store: ``queries.sql`` and the three beside it, read once.

What must stay true: SQL stands in ``.sql`` files alone. A statement is asked for when a module is loaded, so that a
wrong name fails at start and not at the first message.

The files are one list of ``-- name: x`` (a statement) and ``-- part: x`` (a piece that statements name as ``{x}``),
each followed by comments that say what it is for and by its text up to ``;``.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

HERE = Path(__file__).parent
_HEAD = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)


def parse(text: str, instead: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The statements by name, without their comments, on one line each. ``instead``: the parts that stand in the place
    of others."""
    pieces = _HEAD.split(text)[1:]
    parts: dict[str, str] = {}
    statements: dict[str, str] = {}
    for kind, name, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        lines = (line.split("--")[0].strip() for line in body.splitlines())
        sql = " ".join(line for line in lines if line).removesuffix(";")
        sql = sql.format_map(parts | {part: parts[other] for part, other in instead.items() if other in parts})
        target = parts if kind == "part" else statements
        if name in target:
            raise ValueError(f"two of the name {name}")
        target[name] = sql
    return statements


_FILES = ("queries.sql", "finding.sql", "damage.sql", "renewing.sql")
_TEXT = "".join((HERE / name).read_text("utf-8") for name in _FILES)
SQL = parse(_TEXT)
# For each statement that gives deliveries or messages, the one that gives the same with texts as bytes.
_RAW = parse(_TEXT, {"delivery": "delivery_bytes", "message": "raw_message"})
AS_BYTES = {sql: _RAW[name] for name, sql in SQL.items() if _RAW[name] != sql}
