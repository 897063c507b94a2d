"""Which addresses may be reached: none of this machine or its networks unless a person said so, and some never."""

from ipaddress import ip_address

import pytest

from angelia.turns.outside import addresses_of, may_be_reached

PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    "127.0.0.1", "127.8.9.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1",
    "::1", "fd12::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::",
]  # fmt: skip
NEVER = [
    "169.254.169.254", "169.254.1.1", "169.254.170.2", "100.100.100.200", "192.0.0.192", "fd00:ec2::254",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fe80::1", "0.0.0.0", "0.1.2.3", "::",
    "224.0.0.1", "239.1.1.1", "ff02::1", "::ffff:224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::ffff:0.0.0.0", "::7f00:1", "64:ff9b:1::7f00:1", "2001:0:7f00:1::1", "fec0::1", "5f00::1", "100::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_the_world_may_be_reached(address: str) -> None:
    assert may_be_reached(ip_address(address), private=False)
    assert may_be_reached(ip_address(address), private=True)


@pytest.mark.parametrize("address", PRIVATE)
def test_this_machine_and_its_networks_take_a_persons_word(address: str) -> None:
    assert not may_be_reached(ip_address(address), private=False)
    assert may_be_reached(ip_address(address), private=True)


@pytest.mark.parametrize("address", NEVER)
def test_some_are_never_reached(address: str) -> None:
    assert not may_be_reached(ip_address(address), private=False)
    assert not may_be_reached(ip_address(address), private=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost"])
async def test_however_an_address_is_written_it_is_that_address(host: str) -> None:
    assert {str(address) for address in await addresses_of(host, 80)} <= {"127.0.0.1", "::1"}


@pytest.mark.parametrize("host", ["nobody.invalid", "a" * 64 + ".example"])
async def test_a_host_that_is_none_has_no_address(host: str) -> None:
    with pytest.raises(OSError, match=r"."):
        await addresses_of(host, 80)
