"""One event of the log as a line: words for people, or JSON for programs.

What must stay true: a line holds no token, and nothing that a terminal obeys: whatever a peer's text brought into a
message or a traceback stands there as escapes, and is cut where it is long, with the number of letters left out. The
words of an event are in the code alone, so its name (``event``) can be made of them; the values in it change nothing.
"""

import json
import logging
import re
import time
from datetime import UTC, datetime
from typing import NamedTuple

from angelia.cli.show import visible
from angelia.model.tokens import HIDDEN, masked

LETTERS = 2_000  # of one message or one line of a traceback
_VALUE = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
_BREAK = re.compile(r"[:;,(]")
# Where a token stands, whatever it looks like: it may be another program's.
_SAID_TO_BE = re.compile(r"(?i:(?<=bearer )\S+|(?<=token=)[^\s&\"']+)")


def event_of(template: str) -> str:
    """The name of an event: its words up to the first stop, without the values. ``the_disk_is_full``, say."""
    words = re.findall(r"[a-z0-9]+", _VALUE.sub(" ", _BREAK.split(template.replace("'", ""))[0]).lower())
    return "_".join(words)


def safe(text: str) -> str:
    """A text as it may stand in a line of the log."""
    more = len(text) - LETTERS
    shown = masked(_SAID_TO_BE.sub(HIDDEN, text[: LETTERS + 200]))  # so that none is cut in two and stays
    shown = visible(shown[:LETTERS], multiline=False)
    return shown if more <= 0 else f"{shown} … and {more} more letters"


class Line(NamedTuple):
    """One event: when (UTC seconds), how bad, in which part of the hub, its name, its words, a traceback's lines.
    ``subject``: what the words say the state of, if they do; a record names it as its ``subject``."""

    at: float
    level: str
    part: str
    event: str
    message: str
    trace: tuple[str, ...] = ()
    subject: str = ""


def read(record: logging.LogRecord) -> Line:
    """What was logged; a record that cannot be put into words is named."""
    try:
        message = safe(record.getMessage().rstrip())  # a library may end its line itself
    except Exception:  # noqa: BLE001 - a line that cannot be made must not end the work that it tells of
        message = f"a log line could not be made: {record.msg!r}"
    trace: list[str] = []
    if record.exc_info and record.exc_info[0] is not None:
        trace = [safe(line) for line in logging.Formatter().formatException(record.exc_info).splitlines()]
    level = record.levelname.lower()
    subject = str(getattr(record, "subject", ""))
    return Line(record.created, level, record.name, event_of(str(record.msg)), message, tuple(trace), subject)


def plain(line: Line) -> str:
    """For people: the time here, the level, the words; a traceback follows, indented."""
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    return f"{moment} {line.level}: {line.message}" + "".join(f"\n    {each}" for each in line.trace)


def as_json(line: Line, **more: object) -> str:
    """For programs: one object, in ASCII, on one line."""
    at = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    told = {**line._asdict(), **more, "at": at}
    del told["subject"]
    if not line.trace:
        del told["trace"]
    return json.dumps(told, ensure_ascii=True)


def again(line: Line, times: int, seconds: float, *, in_json: bool) -> str:
    """What is said of a line that came ``times`` more times, once they are over; of a subject, the last of so many that
    were not told. ``line.at`` is now."""
    if in_json:
        return as_json(line, times=times, seconds=round(seconds))
    span = "minute" if round(seconds) == 60 else f"{round(seconds)} s"
    if line.subject:
        return f"{plain(line)} … the last of {times} more {'line' if times == 1 else 'lines'} on it in the last {span}"
    return f"{plain(line)} … {times} more {'time' if times == 1 else 'times'} in the last {span}"
