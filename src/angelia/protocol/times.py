"""Moments on the wire: RFC 3339, UTC, milliseconds."""

from datetime import UTC, datetime


def rfc3339(milliseconds: int) -> str:
    """``1800000000000`` → ``2027-01-15T08:00:00.000Z``."""
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
