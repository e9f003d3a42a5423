"""Which addresses a Router may dial for a client: public ones, and networks that the operator names."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

# The only part of IPv6 that is given out for global use (RFC 4291, IANA's registry); Python calls more of it global.
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")  # RFC 9637
# What Python takes for public, though a cloud's machines find its services there: Oracle's among IANA's protocol
# assignments (RFC 6890), Azure's at an address of its own.
_INSIDE_V4 = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("168.63.129.16/32"))


class PublicAddresses:
    """allowed: networks (CIDR) that are not public and may be dialled all the same."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self._allowed = [ipaddress.ip_network(network) for network in allowed]

    def socket(self, address: tuple[int, int, int, str, tuple[str | int, ...]]) -> socket.socket:
        """A socket for one resolved address, as `socket.getaddrinfo` gives it. OSError where it may not be dialled.

        As aiohttp's socket factory it sees every address just before it is dialled, so that no second look-up of the
        name can lead elsewhere.
        """
        family, kind, protocol, _, target = address
        if not self.permits(str(target[0])):
            raise OSError("not a public address")
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    def permits(self, host: str) -> bool:
        """Whether the numeric address `host` may be dialled."""
        ip = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(ip, ipaddress.IPv6Address):
            ip = _inner(ip)
        if any(ip.version == network.version and ip in network for network in self._allowed):
            return True
        if isinstance(ip, ipaddress.IPv6Address):
            return ip.is_global and ip in _GLOBAL_V6 and ip not in _DOCUMENTATION
        return ip.is_global and not ip.is_multicast and not any(ip in network for network in _INSIDE_V4)


def _inner(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The v4 address that `ip` stands for: mapped, 6to4, Teredo, NAT64; else itself."""
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None) or ip
