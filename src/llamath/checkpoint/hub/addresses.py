"""Network addresses of a host: its name is resolved once, the addresses are checked, and the
connection goes to one of them.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, NamedTuple

_PRIVATE_4 = tuple(
    map(
        ip_network,
        "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 "
        "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 "
        "203.0.113.0/24 224.0.0.0/4 240.0.0.0/4".split(),
    )
)
_GLOBAL_6 = ip_network("2000::/3")
_PRIVATE_6 = tuple(map(ip_network, "2001::/23 2001:db8::/32 2002::/16 3fff::/20".split()))
"""Parts of the global addresses for protocols (Teredo and others), documentation, and 6to4,
which contains addresses of IPv4."""
_NAT64 = ip_network("64:ff9b::/96")


class SocketAddress(NamedTuple):
    """An address to connect to, as the resolver returns it."""

    family: int
    kind: int
    protocol: int
    address: tuple[Any, ...]

    @property
    def is_public(self) -> bool:
        """Whether the address is one of the public internet."""
        return is_public(str(self.address[0]))


def is_public(text: str) -> bool:
    """Whether a numeric address is on the public internet, by IANA's registries; an address of
    IPv4 in one of IPv6 is not.
    """
    address = ip_address(text)
    if not isinstance(address, IPv6Address):
        return not any(address in x for x in _PRIVATE_4)
    if address in _NAT64:  # how a network without IPv4 reaches a server that has no other
        return is_public(str(ip_address(int(address) & 0xFFFFFFFF)))
    return address in _GLOBAL_6 and not any(address in x for x in _PRIVATE_6)


def is_odd_number(host: str) -> bool:
    """Whether a host is an address of IPv4 in another form than four decimal numbers: `127.1`,
    `0x7f000001`, `2130706433`, `0177.0.0.1`.

    Resolvers take such names for addresses; a top-level domain is never a number.
    """
    if ":" in host or not re.fullmatch(r"\d+|0x[0-9a-f]*", host.rstrip(".").rpartition(".")[2]):
        return False
    return not re.fullmatch(r"(?:(?:0|[1-9]\d{0,2})\.){3}(?:0|[1-9]\d{0,2})", host)


def resolve(host: str, port: int) -> list[SocketAddress]:
    """Return the addresses of a host."""
    found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    return [
        SocketAddress(family, kind, protocol, address)
        for family, kind, protocol, _, address in found
    ]


def connect(addresses: Sequence[SocketAddress], timeout: float | None) -> socket.socket:
    """Connect to the first of these addresses that answers."""
    error = OSError("the name has no address")
    for x in addresses:
        sock = socket.socket(x.family, x.kind, x.protocol)
        try:
            sock.settimeout(timeout)
            sock.connect(x.address)
            return sock
        except OSError as problem:
            error = problem
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise error
