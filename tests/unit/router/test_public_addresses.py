import ipaddress
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.public_addresses import PublicAddresses


@pytest.mark.parametrize(
    "address",
    """10.0.0.1 172.16.0.1 192.168.1.1 127.0.0.1 169.254.169.254 100.64.0.1 100.100.100.200 192.0.0.192 0.0.0.0
    224.0.0.1 240.0.0.1 255.255.255.255 168.63.129.16 192.0.2.1 198.18.0.1
    ::1 :: fe80::1 fe80::1%eth0 fc00::1 fd00:ec2::254 fec0::1 ff02::1 2001:db8::1 3fff::1 5f00::1
    ::ffff:10.0.0.1 ::ffff:0:127.0.0.1 ::127.0.0.1 64:ff9b::a00:1 64:ff9b:1::a00:1 2002:7f00:1:: ::ffff:168.63.129.16
    2001:0:4136:e378:8000:63bf:80ff:fffe 64:ff9b::a9fe:a9fe""".split(),
)
def test_addresses_that_are_not_public(address):
    assert not PublicAddresses().permits(address)
    with pytest.raises(OSError, match="not a public address"):
        PublicAddresses().socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses(address):
    assert PublicAddresses().permits(address)


def test_a_named_network_is_permitted():
    addresses = PublicAddresses(["10.1.0.0/16", "fd00:1::/32"])
    assert addresses.permits("10.1.2.3")
    assert addresses.permits("::ffff:10.1.2.3")
    assert addresses.permits("fd00:1::5")
    assert not addresses.permits("10.2.0.1")
    assert not addresses.permits("fd00:2::5")


@given(st.ip_addresses(v=4))
@settings(deadline=None)
def test_clothes_change_nothing(address):
    number = int(address)
    worn = [f"::ffff:{address}", str(ipaddress.IPv6Address((0x64FF9B << 96) | number))]
    worn.append(str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80))))
    naked = PublicAddresses().permits(str(address))
    assert [PublicAddresses().permits(one) for one in worn] == [naked] * 3
