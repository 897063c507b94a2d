"""What an agent should be told of itself and of the others, as Markdown."""

from angelia.bus.briefing import briefing
from angelia.bus.caller import Rank, may
from angelia.bus.core import Bus
from angelia.doors.http.call import Call
from angelia.doors.http.hub import Hub
from angelia.model.address import check_handle

MARKDOWN = b"text/markdown; charset=utf-8"


async def brief(call: Call, bus: Bus, hub: Hub) -> None:
    """What an agent should be told: who it is, whom it can reach and how; its ETag changes when the text would."""
    may(call.caller, "read")
    name = bus.directory.require(check_handle(call.param("handle")))
    if call.caller.rank is not Rank.ADMIN:
        name, _ = bus.identify(call.caller, name, "handle")
    told = briefing(bus, name, hub.url)
    tag = b'"%b"' % told.epoch.encode()
    headers = ((b"etag", tag), (b"cache-control", b"no-cache"))
    if _has(call.header(b"if-none-match"), tag.decode()):
        await call.answer(b"", 304, kind=MARKDOWN, headers=headers)
        return
    await call.answer(told.text.encode(), kind=MARKDOWN, headers=headers)


def _has(asked: str | None, tag: str) -> bool:
    """Whether a caller has the text of this tag already."""
    known = [each.strip().removeprefix("W/") for each in (asked or "").split(",")]
    return tag in known or "*" in known
