"""The script for fish."""

from __future__ import annotations

from collections.abc import Sequence

from angelia.cli.described import FILES, FOLDERS, NAMES, PROGRAMS, Command, Slot, valued

_HEAD = """\
# Completion of angelia for fish. Made by: angelia completion fish

"""
_BODY = r"""
function __angelia_at --description 'whether the cursor is at place $argv[2] of the command $argv[1]'
    set -l command ''
    set -l place 0
    set -l wanted ''
    for word in (commandline -opc)[2..-1]
        if test -n "$wanted"
            set wanted ''
        else if contains -- $word $__angelia_valued
            set wanted $word
        else if not string match -q -- '-*' $word
            if test -z "$command"
                set command $word
            else
                set place (math $place + 1)
            end
        end
    end
    test "$command" = "$argv[1]"; and begin
        test (count $argv) -lt 2; or test (math $place + 1) = "$argv[2]"
    end
end

function __angelia_names
    set -l hub
    set -l wanted ''
    for word in (commandline -opc)[2..-1]
        if test -n "$wanted"
            set -a hub $wanted $word
            set wanted ''
        else if contains -- $word --hub --data-dir
            set wanted $word
        end
    end
    command angelia $hub completion names 2>/dev/null </dev/null
end

complete -c angelia -f
"""
_OFFERS = {
    NAMES: "-x -a '(__angelia_names)'",
    FILES: "-r -F",
    FOLDERS: "-x -a '(__fish_complete_directories)'",
    PROGRAMS: "-x -a '(__fish_complete_command)'",
}


def script(commands: Sequence[Command], everywhere: Sequence[Slot]) -> str:
    """The whole script."""
    options = [*everywhere, *(option for command in commands for option in command.options)]
    lines = [f"set -g __angelia_valued {' '.join(dict.fromkeys(valued(options)))}\n"]
    lines += [_BODY]
    lines += [_place("''", 1, f"-a {command.name} -d {_quoted(command.summary)}") for command in commands]
    lines += [_place("''", 1, "-a help -d 'a command in full, or the manual'")]
    lines += [_place("help", 1, f"-a {_quoted(' '.join(command.name for command in commands))}")]
    lines += [f"complete -c angelia {_option(slot)}\n" for slot in everywhere]
    for command in commands:
        for number, slot in enumerate(command.places, 1):
            if offer := _offer(slot):
                lines.append(_place(command.name, number, offer))
        known = {flag for slot in everywhere for flag in slot.flags}
        own = [slot for slot in command.options if not known.intersection(slot.flags)]
        lines += [f"complete -c angelia -n '__angelia_at {command.name}' {_option(slot)}\n" for slot in own]
    return _HEAD + "".join(lines)


def _place(command: str, number: int, offer: str) -> str:
    condition = f"__angelia_at {command} {number}" if command != "''" else '__angelia_at ""'
    return f"complete -c angelia -n '{condition}' {offer}\n"


def _option(slot: Slot) -> str:
    flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in slot.flags)
    takes = (_offer(slot) or "-x") if slot.value or slot.choices else ""
    return " ".join(part for part in (flags, takes, f"-d {_quoted(slot.words)}") if part)


def _offer(slot: Slot) -> str:
    return f"-x -a {_quoted(' '.join(slot.choices))}" if slot.choices else _OFFERS.get(slot.kind, "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
