"""The script for bash: from 3.2 on (macOS), without the bash-completion package.

What must stay true: what is typed is only compared, never evaluated. Words that bash has cut at ``=`` and ``@`` are put
together again, and what is offered begins behind the cut, as readline wants it.
"""

from __future__ import annotations

from collections.abc import Sequence

from angelia.cli.described import Command, Slot, valued

_HEAD = """\
# Completion of angelia for bash. Made by: angelia completion bash

"""
_BODY = r"""
_angelia_offer() {  # each line of stdin that goes on as $1 does, without the beginning $2 that stands there already
    local word
    while IFS= read -r word; do
        case $word in "$1"*) COMPREPLY+=("${word#"$2"}") ;; esac
    done
}

_angelia() {
    local command='' place=0 wanted='' closed='' word i=1 cur typed lead slot kind
    local before_command='' before_place=0 before_wanted=''
    local -a hub
    COMPREPLY=()
    while [ "$i" -le "$COMP_CWORD" ]; do
        word=${COMP_WORDS[i]}
        i=$((i + 1))
        if [ "$word" = @ ]; then  # the word before goes on
            command=$before_command place=$before_place wanted=$before_wanted
            continue
        fi
        if [ "$i" -gt "$COMP_CWORD" ] || [ "$word" = = ]; then continue; fi
        before_command=$command before_place=$place before_wanted=$wanted
        if [ -n "$wanted" ]; then
            case $wanted in --hub | --data-dir) hub+=("$wanted" "$word") ;; esac
            wanted=''
        elif [ -z "$closed" ] && [ "$word" = -- ]; then
            closed=yes
        elif [ -z "$closed" ] && [ "${word#-}" != "$word" ]; then
            case " $_angelia_valued " in *" $word "*) wanted=$word ;; esac
        elif [ -z "$command" ]; then
            command=$word
        else
            place=$((place + 1))
        fi
    done
    typed=${COMP_LINE:0:COMP_POINT}
    typed=${typed##*[[:space:]]}
    cur=${COMP_WORDS[COMP_CWORD]}
    case $cur in = | :) cur='' ;; esac
    case $typed in -*=*) typed=${typed#*=} ;; esac
    lead=${typed%"$cur"}
    case $typed in *@*) lead=${typed%%@*} ;; esac  # for readline the word begins with the sign

    slot=${wanted:-$((place + 1))}
    if [ -z "$wanted" ] && [ -z "$command" ]; then slot=0; fi
    if [ -z "$wanted" ] && [ -z "$closed" ] && [ "${typed#-}" != "$typed" ]; then slot=options; fi
    kind=$(_angelia_kind "$command $slot")
    case $kind in
        names) _angelia_offer "$typed" "$lead" < <(_angelia_names ${hub[@]+"${hub[@]}"}) ;;
        files) compopt -o filenames 2>/dev/null; _angelia_offer "$typed" "$lead" < <(compgen -f -- "$typed") ;;
        folders) compopt -o filenames 2>/dev/null; _angelia_offer "$typed" "$lead" < <(compgen -d -- "$typed") ;;
        programs) _angelia_offer "$typed" "$lead" < <(compgen -c -- "$typed") ;;
        *) _angelia_offer "$typed" "$lead" < <(printf '%s\n' $kind) ;;
    esac
}

_angelia_names() {
    "${COMP_WORDS[0]/#\~/$HOME}" "$@" completion names 2>/dev/null </dev/null
}

complete -F _angelia angelia
"""


def script(commands: Sequence[Command], everywhere: Sequence[Slot]) -> str:
    """The whole script."""
    options = [*everywhere, *(option for command in commands for option in command.options)]
    names = " ".join(command.name for command in commands)
    cases = [('" 0"', f"{names} help"), ('" options"', " ".join([*_flags(everywhere), "--help", "--version"]))]
    cases += [('"help 1"', names)]
    for command in commands:
        own = [*command.options, *everywhere]
        cases.append((f'"{command.name} options"', " ".join([*dict.fromkeys(_flags(own)), "--help"])))
        for place, slot in enumerate(command.places, 1):
            cases.append((f'"{command.name} {place}"', _kind(slot)))
        for slot in command.options:
            cases += [(f'"{command.name} {flag}"', _kind(slot)) for flag in slot.flags]
    for slot in everywhere:
        cases += [(f'*" {flag}"', _kind(slot)) for flag in slot.flags]
    lines = [f"        {case}) echo '{kind}' ;;\n" for case, kind in cases if kind]
    what = "what may stand at a place, an option's or a number, of a command"
    table = f"_angelia_kind() {{  # {what}\n    case $1 in\n{''.join(lines)}    esac\n}}\n"
    return f"{_HEAD}_angelia_valued='{' '.join(dict.fromkeys(valued(options)))}'\n\n{table}{_BODY}"


def _flags(slots: Sequence[Slot]) -> list[str]:
    return [flag for slot in slots for flag in slot.flags]


def _kind(slot: Slot) -> str:
    return " ".join(slot.choices) or slot.kind
