"""What a command ends with: every exit code, and which error means which. Scripts and supervisors rely on them."""

from __future__ import annotations

from angelia.client.errors import AskFailed, NoHub, TimedOut
from angelia.settings import SettingsError

DONE = 0
NO = 1  # the answer is no: refused, failed, not found
USAGE = 2
TAKEN = 3  # the data folder or the port is somebody's; the text says whose
NO_HUB = 4
TIMED_OUT = 5
WRONG_SETTINGS = 78  # a supervisor should not restart
INTERRUPTED = 130  # 128 + SIGINT, as shells have it

MEANING = {
    DONE: "done",
    NO: "the answer is no: refused, failed or not found",
    USAGE: "wrong usage",
    TAKEN: "the data folder or the port is taken",
    NO_HUB: "no hub to talk to",
    TIMED_OUT: "timed out",
    WRONG_SETTINGS: "the settings are wrong",
}

# The code of an error that is none of a hub's, which has its own.
WORDS = {
    NO: "failed",
    USAGE: "wrong_usage",
    TAKEN: "taken",
    NO_HUB: "no_hub",
    TIMED_OUT: "timed_out",
    WRONG_SETTINGS: "wrong_settings",
}

# A value that somebody has just typed is wrong usage; what a supervisor would start again with is wrong settings.
_OF_THE_COMMAND_LINE = ("--hub", "--as")


class UsageError(Exception):
    """The command line cannot be meant as it stands."""


class Refused(Exception):
    """The command line itself says no, before any hub is asked."""


def code_of(error: Exception) -> int:
    """The exit code for an error that reached the end of a command."""
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, SettingsError):
        return USAGE if error.where in _OF_THE_COMMAND_LINE else WRONG_SETTINGS
    if isinstance(error, TimedOut):
        return TIMED_OUT
    return NO_HUB if isinstance(error, NoHub) else NO


def word_of(error: Exception) -> str:
    """The ``code`` of an error in JSON, for one that has none of a hub's."""
    if isinstance(error, AskFailed):
        return error.reason
    return "refused" if isinstance(error, Refused) else WORDS[code_of(error)]
