"""The times that are promised of links, where other tests have shorter ones in their place."""

import pytest

from angelia.links import hermes_in, hub_link, keeper
from angelia.links.hermes_rosters import Pace


@pytest.mark.parametrize(
    ("seconds", "least", "most"),
    [
        pytest.param(hermes_in.GATHER_SECONDS, 0, 0.25, id="mail of a gateway is fetched within 250 ms of its signal"),
        pytest.param(hermes_in.POLL_SECONDS, 1, 30, id="and looked for without one every 30 s"),
        pytest.param(keeper.BEHIND_SECONDS, 1, 30, id="so is what waits for a link between hubs"),
        pytest.param(keeper.GATHER_SECONDS, 0, 0.9, id="a change of a roster is told within a second"),
        pytest.param(hub_link.ROSTER_SECONDS, 60, 60, id="rosters are told every minute, between hubs"),
        pytest.param(Pace().roster, 60, 60, id="and to gateways"),
        pytest.param(keeper.FIRST_SECONDS, 1, 1, id="a line that broke is dialled after a second"),
        pytest.param(keeper.LAST_SECONDS, 60, 60, id="and each minute at last"),
    ],
)
def test_times(seconds: float, least: float, most: float) -> None:
    assert least <= seconds <= most
