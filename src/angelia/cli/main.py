"""``angelia``: the table of commands, and what is the same for all of them.

What must stay true: a command's module, and what it needs, is loaded when that command is called and not before, so
that ``send`` starts fast. Every error ends here, as a sentence on stderr and an exit code of ``exits.py``.
"""

from __future__ import annotations

import os
import sys

from angelia import __version__
from angelia.cli import exits
from angelia.client.errors import ClientError
from angelia.settings import SettingsError, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from angelia.settings import Settings

    Run = Callable[[list[str], Settings], int]

# Each module has ``run(argv, settings) -> exit code``.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("angelia.cli.up", "start the hub of the data folder"),
    "down": ("angelia.cli.down", "stop it"),
    "status": ("angelia.cli.status", "what is wrong, who is here, and what waits"),
    "service": ("angelia.cli.service", "let the system run the hub: install, uninstall, status"),
    "doctor": ("angelia.cli.doctor", "find out why something does not work"),
    "agents": ("angelia.cli.agents", "everyone who can be reached"),
    "send": ("angelia.cli.send", "send a message"),
    "ask": ("angelia.cli.ask", "send a question and print its answer"),
    "message-agent": ("angelia.cli.message_agent", "send as an agent's tool does, in JSON"),
    "reply": ("angelia.cli.reply", "answer a message"),
    "inbox": ("angelia.cli.inbox", "look at your mail, without taking it"),
    "listen": ("angelia.cli.listen", "receive your mail as it comes, for ever"),
    "message": ("angelia.cli.message", "what became of a message"),
    "threads": ("angelia.cli.threads", "the conversations there are, the latest first"),
    "thread": ("angelia.cli.thread", "a whole conversation"),
    "search": ("angelia.cli.search", "find messages by their words"),
    "gateway": ("angelia.cli.gateway", "speak JSON-RPC with the hub on stdin and stdout"),
    "tail": ("angelia.cli.tail", "all that happens at the hub, as it happens"),
    "join": ("angelia.cli.join", "make a name an agent's own, and say how it is woken"),
    "leave": ("angelia.cli.leave", "give a name up"),
    "briefing": ("angelia.cli.briefing", "what an agent should be told: who, whom and how"),
    "wake": ("angelia.cli.wake", "run a real turn of an agent, to see that it works"),
    "turns": ("angelia.cli.turns", "the turns that run; stop one"),
    "connect": ("angelia.cli.connect", "reach another hub, or a gateway of Hermes'"),
    "connections": ("angelia.cli.connections", "the other hubs and gateways, and how each stands"),
    "disconnect": ("angelia.cli.disconnect", "give such a connection up"),
    "pair": ("angelia.cli.pair", "let two hubs learn each other's key, by a short code"),
    "desktop": ("angelia.cli.desktop", "a token for a desktop that relays"),
    "completion": ("angelia.cli.completion", "a script that completes what you type, for your shell"),
    "dead": ("angelia.cli.dead", "what could not be delivered: list, requeue or drop it"),
    "backup": ("angelia.cli.backup", "make a verified copy of the hub's store"),
    "restore": ("angelia.cli.restore", "put such a copy back"),
}
# Accepted before and after the command. Which setting each one is.
_OPTIONS = {"--hub": "hub_url", "--data-dir": "data_dir", "--as": "agent"}


def main(argv: list[str] | None = None) -> int:
    """Run one command line; the process ends with what this returns."""
    words = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):  # a name must not end a command where the locale has no letter for it
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _run(words)
    except BrokenPipeError:  # whoever reads our answer has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.DONE
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _run(words: list[str]) -> int:
    as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
    try:
        command, rest, overrides = split(words)
        if command in ("", "help", "--help", "-h"):
            return _help([word for word in rest if word != "--json"], asked=command != "")
        if command == "--version":
            print(f"angelia {__version__}")
            return exits.DONE
        if command.startswith("-"):
            raise exits.UsageError(f"there is no option '{command}'; angelia --help lists them")
        if command not in COMMANDS:
            raise exits.UsageError(unknown(command))
        code = _loaded(command)(rest, load(overrides))
        if sys.stdout is not None:
            sys.stdout.flush()  # here, so that a full disk or a reader who has gone is told like any other trouble
        return code
    except (SettingsError, exits.UsageError, exits.Refused, ClientError) as error:
        _say_trouble(error, as_json)
        return exits.code_of(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        _say_trouble(error, as_json)
        return exits.NO
    except UnicodeEncodeError:
        _say_trouble(exits.UsageError("the command line holds bytes that are no UTF-8"), as_json)
        return exits.USAGE


def split(words: list[str]) -> tuple[str, list[str], dict[str, object]]:
    """Take the options that every command has out of a command line. Out: the command, its own words, the options."""
    overrides: dict[str, object] = {}
    rest: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        name, equals, value = word.partition("=")
        if word == "--":
            rest += words[place:]
            break
        if name not in _OPTIONS:
            rest.append(word)
        elif equals:
            overrides[_OPTIONS[name]] = value
        else:
            place += 1
            overrides[_OPTIONS[name]] = words[place] if place < len(words) else ""
        if name in _OPTIONS and not overrides[_OPTIONS[name]]:
            raise exits.UsageError(f"{name} needs a value")
        place += 1
    early = [word for word in rest[:1] if word == "--json"]
    rest = rest[len(early) :]
    command, rest = (rest[0], rest[1:]) if rest else ("", [])
    return command, [*early, *rest], overrides


def _loaded(command: str) -> Run:
    from importlib import import_module

    run: Run = import_module(COMMANDS[command][0]).run
    return run


def _say_trouble(error: Exception, as_json: bool) -> None:
    from angelia.cli import say

    say.trouble(error, as_json=as_json)


def _help(words: list[str], *, asked: bool) -> int:
    from angelia.cli import manual

    return manual.run(words, asked=asked)


def unknown(command: str) -> str:
    """What to say of a command that there is not."""
    close = [name for name in COMMANDS if _is_close(command, name)]
    hint = f"; did you mean {' or '.join(close)}?" if close else "; angelia --help lists them"
    return f"there is no command '{command}'{hint}"


def _is_close(typed: str, name: str) -> bool:
    """Whether one letter was left out, added, changed, or swapped with its neighbour; or the beginning was typed."""
    if len(typed) > 2 and name.startswith(typed):
        return True
    if len(typed) == len(name):
        differing = [place for place in range(len(name)) if typed[place] != name[place]]
        swapped = len(differing) == 2 and sorted(typed) == sorted(name)
        return len(differing) < 2 or swapped
    longer, shorter = (typed, name) if len(typed) > len(name) else (name, typed)
    return any(longer[:place] + longer[place + 1 :] == shorter for place in range(len(longer)))
