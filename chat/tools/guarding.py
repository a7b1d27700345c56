"""Which addresses a tool may connect to: those of the public internet and no others."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from agents.tools import ToolError

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses that hide another one: what they lead to depends on the network they are used in.
_TRANSLATED = tuple(
    ipaddress.ip_network(network)
    for network in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::ffff:0:0/96", "::/96")
)


class AddressRefused(ToolError):
    """An address inside the network, or one that nobody should reach from here."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host[:200]} is not on the public internet, so it is not fetched.")


@dataclass(frozen=True, slots=True)
class Guard:
    """Judges addresses. `allowed` are pairs of address and port that are let through beside public ones."""

    allowed: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    def check(self, host: str, address: str, port: int) -> None:
        """Raises AddressRefused for an address that is not public; `host` is what the person reads."""
        if (address, port) in self.allowed:
            return
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            raise AddressRefused(host) from None
        if not is_public(found) or not is_usual_port(port):
            raise AddressRefused(host)


def is_public(address: IPAddress) -> bool:
    """Whether an address is one of the public internet's."""
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _TRANSLATED):
        return False
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
        and not address.is_link_local
    )


def is_usual_port(port: int) -> bool:
    """Ports of web servers: below 1024 other protocols live, which must not be talked to."""
    return port in (80, 443) or port >= 1024
