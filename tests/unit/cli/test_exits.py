"""Exit codes: one for each kind of end."""

import pytest

from angelia.cli import exits
from angelia.client.errors import AskFailed, HubError, LostHub, NoHub, NotAHub, TimedOut
from angelia.settings import SettingsError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HubError(404, "unknown_agent", "", "", {}), 1),
        (HubError(503, "unwell", "", "", {}), 1),
        (AskFailed("0" * 32, "cancelled", ""), 1),
        (exits.Refused("no"), 1),
        (OSError("disk"), 1),
        (exits.UsageError("what?"), 2),
        (SettingsError("--as", "is no text"), 2),
        (NoHub("there", "refused"), 4),
        (NotAHub("there", "other"), 4),
        (LostHub("there", "reset"), 4),
        (TimedOut("hermes", 3), 5),
        (SettingsError("ANGELIA_PORT", "is no port"), 78),
        (SettingsError("--port", "is no port"), 78),
    ],
)
def test_codes(error: Exception, code: int) -> None:
    assert exits.code_of(error) == code
