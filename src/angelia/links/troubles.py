"""Why a line could not be had, in words: from what systems, servers and programs say to ``Trouble``.

What must stay true: each trouble says what happened and what a person can do. What a stranger said is shown as one
short line. No secret is ever part of it. ``lasting`` is what only a person can change.
"""

import errno
import os
import socket
import ssl

from angelia.links.place import NoAnswer
from angelia.links.port import Kind, Trouble
from angelia.links.process import Ended

_LETTERS = 200  # of what somebody else said
_LINES = 3  # of what a program said last

_SIGN_IN = "Put the token into a 0600 file and name it with --token-file."
# What a program says at its end, in lower case → the kind, and what to do. The first that is found counts.
_SAID: tuple[tuple[str, Kind, str], ...] = (
    ("host key verification failed", Kind.REFUSED,
     "Log in there by hand with ssh, once, as the user that runs the hub, and compare the key of the machine."),
    ("permission denied (", Kind.REFUSED,
     "Let a key of the user that runs the hub in there; ssh -o BatchMode=yes has to work without a question."),
    ("too many authentication failures", Kind.REFUSED, "Name the key for that machine in the configuration of ssh."),
    ("there is no command 'gateway'", Kind.WRONG_VERSION, "Bring angelia up to date there."),
    ("the hub refuses", Kind.REFUSED, "Give that user a token of the hub there: ANGELIA_TOKEN in its environment."),
    ("no hub", Kind.UNREACHABLE, "Start the hub there, with 'angelia up'."),
    ("could not resolve hostname", Kind.UNREACHABLE, "Look at how the name of the machine is written."),
    ("open failed", Kind.UNREACHABLE, "Start the gateway there, or look at the port behind forward=."),
)  # fmt: skip
_NOT_FOUND = (126, 127)  # what shells, ssh and docker end with where a program is not there, or cannot be run


def said(text: str) -> str:
    """What somebody else said, as one short line that holds nothing but letters."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return line if len(line) <= _LETTERS else line[: _LETTERS - 1] + "…"


def silent(where: str, seconds: float, words: str = "") -> Trouble:
    """Whoever is there says nothing."""
    last = f"; it said: {_last(words)}" if words.strip() else ""
    problem = f"{where} did not answer within {seconds:g} s{last}."
    return Trouble(Kind.UNREACHABLE, problem, "Look whether the machine, and what runs there, is up.")


def of_network(error: Exception, where: str) -> Trouble:
    """A connection that could not be opened, or ended at once."""
    if isinstance(error, ssl.SSLCertVerificationError):
        problem = f"The certificate of {where} is not one to trust: {said(error.verify_message)}."
        advice = "Name the file of the authority that signed it with --ca, or call the machine as it says."
        return Trouble(Kind.REFUSED, problem, advice, lasting=True)
    if isinstance(error, ssl.SSLError):
        problem = f"{where} speaks no TLS that could be understood ({said(error.reason or str(error))})."
        return Trouble(Kind.UNREACHABLE, problem, "Write ws:// in place of wss:// where it shows no certificate.")
    if isinstance(error, socket.gaierror | UnicodeError):
        problem = f"The name in {where} leads to no machine."
        return Trouble(Kind.UNREACHABLE, problem, "Look at how it is written, and whether this machine is online.")
    if isinstance(error, ConnectionRefusedError):
        return Trouble(Kind.UNREACHABLE, f"At {where} nobody listens.", "Start the hub there, or correct the port.")
    if isinstance(error, NoAnswer):  # a server that awaits TLS ends a line in the clear without a word
        advice = "Look whether the machine is up; where it shows a certificate, write wss:// in place of ws://."
        return Trouble(Kind.UNREACHABLE, f"{where} cannot be reached: {error}.", advice)
    number = error.errno if isinstance(error, OSError) else None
    why = (
        os.strerror(number)
        if number is not None and number in errno.errorcode
        else said(str(error)) or type(error).__name__
    )
    return Trouble(Kind.UNREACHABLE, f"{where} cannot be reached: {why}.", "Look whether the machine is up.")


def of_status(status: int, where: str, *, signed_in: bool) -> Trouble:
    """An answer of a server that is none. ``signed_in``: a credential was shown."""
    if status in (401, 403):
        problem = f"{where} lets us not in (HTTP {status})"
        if signed_in:
            return refused(f"{problem}: what we showed is wrong, or not good any more.", "Renew the token or password.")
        return refused(f"{problem}: it asks who we are.", _SIGN_IN)
    if status == 421:
        return refused(f"{where} does not know that name for itself.", "Add the name to its setting allowed_hosts.")
    if status == 429:
        return refused(f"{where} has had too many tries to sign in.", "Wait a minute, and look at the password.")
    if status in (404, 405, 426, 501):
        return unknown(f"What answers at {where} has no place for links (HTTP {status}).")
    if 300 <= status < 400:
        advice = "Give the address that a browser ends at; wss:// where that is https."
        return Trouble(Kind.UNREACHABLE, f"{where} sends callers elsewhere (HTTP {status}).", advice, lasting=True)
    return Trouble(Kind.UNREACHABLE, f"{where} answers HTTP {status}.", "Look at what runs there, and at its log.")


def refused(problem: str, advice: str = _SIGN_IN) -> Trouble:
    """We are not let in."""
    return Trouble(Kind.REFUSED, problem, advice, lasting=True)


def unknown(problem: str, advice: str = "Bring angelia up to date there, or correct the address.") -> Trouble:
    """Nothing that can be understood is there."""
    return Trouble(Kind.WRONG_VERSION, problem, advice, lasting=True)


def no_program(name: str) -> Trouble:
    """A command that this machine does not have."""
    problem = f"There is no program '{said(name)}' on this machine."
    return Trouble(Kind.UNREACHABLE, problem, "Install it, or write its whole path; PATH is the hub's.", lasting=True)


def of_end(ended: Ended, where: str) -> Trouble:
    """A program that ended before it was of use."""
    last = _last(ended.words)
    words, how = ended.words.lower(), "closed its output" if ended.code is None else f"ended with {ended.code}"
    problem = f"{where} {how}: '{last}'." if last else f"{where} {how}, without a word."
    for sign, kind, advice in _SAID:
        if sign in words:
            return Trouble(kind, problem, advice, lasting=kind is not Kind.UNREACHABLE)
    if ended.code in _NOT_FOUND:
        advice = "Install angelia there, or say with --command where it is."
        return Trouble(Kind.UNREACHABLE, problem, advice, lasting=True)
    return Trouble(Kind.UNREACHABLE, problem, "Run the same command by hand, as the user that runs the hub.")


def _last(words: str) -> str:
    """The last lines of what a program said."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return said(" / ".join(lines[-_LINES:]))
