"""The same client on asyncio: bytes move by a protocol of the event loop, and time passes by its clock."""
