"""An agent's program: where it is, and what it says of itself.

What must stay true: what a release can do is told by what its own help lists, never by its number. Looking at it runs
no turn, and ends within seconds. What cannot be started is said with what helps.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from errno import EACCES, ENOENT, ENOEXEC, ENOTDIR

from angelia.model.failure import Reason
from angelia.turns.adapters.port import Failed, Found, Tools

ASK_SECONDS = 20.0  # a program of Node that starts cold on a busy machine takes five
_ASK_BYTES = 1024 * 1024  # the longest help here has 40 kB
_MENDED_BY_HAND = {ENOENT, ENOTDIR, EACCES, ENOEXEC}  # anything else may be better in a moment
_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")


@dataclass(frozen=True, slots=True)
class Needs:
    """What an adapter needs of a program. ``install``: a command that brings a newer one. ``flags``: for each way to
    ask for help, the options that have to be in it."""

    name: str
    title: str
    install: str
    flags: Mapping[tuple[str, ...], Sequence[str]]


def locate(name: str, given: str | None, tools: Tools) -> str | None:
    """The program that was given, or the one of this name in the hub's PATH, by its whole path; None for none."""
    found = given or shutil.which(name, path=tools.environment.get("PATH", os.defpath))
    return os.path.abspath(found) if found else None


def check(name: str, given: str | None, folder: str | None, own: Sequence[str], arguments: Sequence[str]) -> str | None:
    """What is wrong with a program's options. ``own``: those of its options that the adapter sets itself."""
    if given is not None and not os.path.isabs(given):
        return f"program is the whole path of {name}, such as /usr/local/bin/{name}."
    if folder is not None and not os.path.isabs(folder):
        return "folder is a whole path."
    for word in arguments:
        if word.split("=", 1)[0] in own:
            return f"arguments cannot hold {word.split('=', 1)[0]}: Angelia sets that itself."
    if any("\0" in word for word in [*arguments, given or "", folder or ""]):
        return "program, folder and arguments hold no NUL."
    return None


def wrong_variables(environment: Mapping[str, str]) -> str | None:
    """What is wrong with variables that options set for a program; no value is shown."""
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or name.upper().startswith("ANGELIA_"):
            return f"environment cannot set '{name[:80]}': a name has no '=', and ANGELIA_… is the hub's to set."
        if "\0" in value:
            return f"environment sets '{name[:80]}' to something with a NUL in it, which no program can get."
    return None


async def ask(tools: Tools, *argv: str) -> str | None:
    """What it prints for a question such as ``--version``; None where it cannot be started, fails or says nothing."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            ended = await tools.children.run(
                argv, environment=tools.environment, folder=tools.home, limit_bytes=_ASK_BYTES
            )
    except (OSError, TimeoutError):
        return None
    return ended.stdout.decode("utf-8", "replace").strip() or None if ended.code == 0 else None


async def detect(needs: Needs, given: str | None, folder: str | None, tools: Tools, way: str) -> Found:
    """Look for the program and ask it what it is and can; ``way`` is the route that works where nothing is missing."""
    found = locate(needs.name, given, tools)
    if found is None:
        where = f"There is no {needs.name} in the hub's PATH"
        return Found(problem=f"{where}: {needs.install}, or join the agent with its whole path as program.")
    said = await ask(tools, found, "--version")
    if said is None:
        return Found(found, problem=f"{found} --version does not answer; it cannot be run as it is.")
    version = number[0] if (number := _VERSION.search(said)) else said[:40]
    for question, flags in needs.flags.items():
        known = await ask(tools, found, *question) or ""
        missing = [flag for flag in flags if flag not in known]
        if missing:
            lacks = f"This {needs.title} ({version}) lacks {', '.join(missing)}"
            return Found(found, version, problem=f"{lacks}; a newer one has them: {needs.install}")
    if not await asyncio.to_thread(os.path.isdir, folder or tools.home):
        return Found(found, version, problem=f"The folder {folder or tools.home} is not there: mkdir -p it.")
    return Found(found, version, ways=(way,))


def not_found(title: str, route: str) -> Failed:
    """The turn of an agent whose program is not there."""
    text = f"{title} is not installed where the hub looks for programs: whoever runs this agent has to mend that."
    return Failed(text, route, reason=Reason.MISSING_CONFIG, began=False)


def not_started(title: str, route: str, error: OSError) -> Failed:
    """The turn of an agent whose program, or whose folder, the system refused."""
    text = f"{title} could not be started: {error.strerror or 'the system refused it'}."
    reason = Reason.MISSING_CONFIG if error.errno in _MENDED_BY_HAND else Reason.RUNTIME_OFFLINE
    return Failed(text, route, reason=reason, began=False)
