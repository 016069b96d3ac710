"""Which addresses workflows may reach: public ones, and those that the operator names.

Inside a private network, or on the machine itself, a URL in a submitted document would reach what
no outsider can: databases, admin pages, and the metadata service that hands out a cloud's keys.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

import msgspec

from runnel.errors import ServiceRefusedError

Address: TypeAlias = IPv4Address | IPv6Address

ALL = "*"
# Where clouds keep keys, also inside networks that are private: only to be had by their name.
# 168.63.129.16 is Azure's, and looks public.
METADATA = tuple(
    map(
        ip_network,
        (
            "169.254.0.0/16",
            "fe80::/10",
            "fd00:ec2::254/128",
            "fd20:ce::254/128",
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
        ),
    )
)
# Not public, although Python before 3.12.4 takes them for it, or does not know them at all.
_NOT_PUBLIC = tuple(map(ip_network, ("192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10")))
# IPv6 addresses that stand for an IPv4 address, which is in their last four bytes.
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "::/96")))


class Addresses(msgspec.Struct, frozen=True):
    """`entries` are networks, addresses and names of hosts that may be reached besides public
    ones; `*` allows all private ones but the metadata services.
    """

    entries: tuple[str, ...] = ()

    def check(self, host: str, address: str) -> None:
        """Raises ServiceRefusedError, which names the setting that would allow it."""
        if not self._allows(host, plain(address)):
            raise ServiceRefusedError(
                f"'{host}' is at {address}, which is not a public address: who runs the worker has "
                f"to allow it, with RUNNEL_ALLOW_PRIVATE_ADDRESSES={host} for example"
            )

    def _allows(self, host: str, address: Address) -> bool:
        if host.lower().rstrip(".") in map(str.lower, self.entries):
            return True
        if any(_is_in(address, entry) for entry in self.entries):
            return True
        if any(address in network for network in METADATA):
            return False
        return is_public(address) or ALL in self.entries


def plain(address: str) -> Address:
    """An IPv4 address in the clothes of an IPv6 one is the IPv4 address."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return found
    inner = found.ipv4_mapped or found.sixtofour
    if inner is None and found.teredo is not None:
        inner = found.teredo[1]
    if inner is None and any(found in network for network in _TRANSLATED) and int(found) > 1:
        inner = IPv4Address(int(found) & 0xFFFFFFFF)
    return found if inner is None else inner


def is_public(address: Address) -> bool:
    is_known = any(address in network for network in _NOT_PUBLIC)
    return (
        address.is_global and not is_known and not address.is_multicast and not address.is_reserved
    )


def _is_in(address: Address, entry: str) -> bool:
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:  # the name of a host
        return False
