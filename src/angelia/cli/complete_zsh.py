"""The script for zsh: works when it is sourced, and as a file ``_angelia`` in ``fpath``."""

from __future__ import annotations

from collections.abc import Sequence

from angelia.cli.described import FILES, FOLDERS, NAMES, PROGRAMS, Command, Slot

_HEAD = """\
#compdef angelia
# Completion of angelia for zsh. Made by: angelia completion zsh

_angelia_names() {
    local -a found hub
    local option
    hub=($angelia_hub)
    for option in --hub --data-dir; do
        (( $+opt_args[$option] )) && hub+=($option ${(Q)${opt_args[$option]//\\\\:/:}})
    done
    found=(${(f)"$(command angelia $hub completion names 2>/dev/null </dev/null)"})
    compadd -a found
}

"""
_TAIL = """\
    esac
}

if [[ $funcstack[1] == _angelia ]]; then
    _angelia "$@"
else
    compdef _angelia angelia
fi
"""
_OFFERS = {NAMES: "_angelia_names", FILES: "_files", FOLDERS: "_files -/", PROGRAMS: "_command_names -e"}


def script(commands: Sequence[Command], everywhere: Sequence[Slot]) -> str:
    """The whole script."""
    everywhere = [*everywhere, Slot(("--help",), "", (), "more about it")]
    listed = "".join(f"        {_quoted(f'{_plain(each.name)}:{each.summary}')}\n" for each in commands)
    rows = [
        _HEAD,
        "_angelia_commands() {\n    local -a listed\n    listed=(\n",
        listed,
        "        'help:a command in full, or the manual'\n    )\n    _describe command listed\n}\n\n",
        "_angelia() {\n    local context state state_descr line option\n    local -a angelia_hub everywhere\n",
        "    typeset -A opt_args\n    everywhere=(\n",
        *(f"        {_option(slot)}\n" for slot in everywhere),
        "    )\n    _arguments -C -A '-*' $everywhere '1: :_angelia_commands' '*:: :->rest' && return\n",
        "    for option in --hub --data-dir; do\n",
        "        (( $+opt_args[$option] )) && angelia_hub+=($option ${(Q)${opt_args[$option]//\\\\:/:}})\n    done\n",
        "    case $words[1] in\n        help) _arguments '1: :_angelia_commands' ;;\n",
    ]
    for command in commands:
        known = {flag for slot in everywhere for flag in slot.flags}
        own = [_option(slot) for slot in command.options if not known.intersection(slot.flags)]
        own += [_place(slot, number) for number, slot in enumerate(command.places, 1)]
        specs = "".join(f" \\\n                {spec}" for spec in own)
        rows.append(f"        {command.name}) _arguments -S $everywhere{specs} ;;\n")
    return "".join([*rows, _TAIL])


def _option(slot: Slot) -> str:
    takes = f":{_plain(slot.value or slot.flags[0])}:{_offer(slot)}" if slot.value or slot.choices else ""
    (flag,) = slot.flags
    # More than once: some may be, and the others say so themselves.
    return _quoted(f"*{flag}{'=' if takes else ''}[{_plain(slot.words)}]{takes}")


def _place(slot: Slot, number: int) -> str:
    return _quoted(f"{number}:{_plain(slot.value or slot.words)}:{_offer(slot)}")


def _offer(slot: Slot) -> str:
    return f"({' '.join(slot.choices)})" if slot.choices else _OFFERS.get(slot.kind, "")


def _plain(text: str) -> str:
    """A text in a specification, where some signs mean something."""
    for sign in "\\[]:":
        text = text.replace(sign, f"\\{sign}")
    return text


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
