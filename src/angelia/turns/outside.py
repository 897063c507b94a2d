"""Which addresses outside the hub may be reached, and finding those of a host.

What must stay true: what is looked up once is what is connected to, so that a name cannot mean one address for the
check and another for the connection. Addresses of this machine, of its networks, of several machines at once, and those
where a cloud hands out its credentials are refused, in every way that they can be written; a person may allow the
first two for one endpoint, never the rest.
"""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address

# Where clouds hand out their machines' credentials. Most do at a link-local one, which is refused as a whole.
_METADATA = {ip_address("fd00:ec2::254"), ip_address("100.100.100.200"), ip_address("192.0.0.192")}
_GLOBAL = IPv6Network("2000::/3")  # all that is given out to the world; the rest has one special meaning or another
_LOCAL = IPv6Network("fc00::/7")  # what 10.0.0.0/8 is
_NAT64 = IPv6Network("64:ff9b::/96")  # an IPv4 address in its last four bytes


def may_be_reached(address: Address, *, private: bool) -> bool:
    """Whether to connect there. ``private``: a person allowed this machine and its networks."""
    address = _meant(address)
    if address in _METADATA or address.is_link_local or address.is_multicast:
        return False
    if isinstance(address, IPv6Address):
        public = address in _GLOBAL and address.is_global
        return public or (private and (address.is_loopback or address in _LOCAL))
    if address.is_reserved or address.packed[0] == 0:  # 0.0.0.0 is this machine, by another name
        return False
    return private or address.is_global


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, where it does."""
    if isinstance(address, IPv6Address):
        if address in _NAT64:
            return IPv4Address(address.packed[-4:])
        return address.ipv4_mapped or address.sixtofour or address
    return address


async def addresses_of(host: str, port: int) -> list[Address]:
    """The addresses of a host, in the system's order. Raises ``OSError`` where it has none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a name that cannot be one
        raise OSError(str(error)) from None
    return [ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
