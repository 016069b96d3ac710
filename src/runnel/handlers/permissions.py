"""What an operator lets workflows use: functions, programs and addresses.

A document alone enables nothing.
"""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import TypeAlias

import msgspec

from runnel.authoring.calls import AnyFunction
from runnel.errors import NotAllowedError, ProgramNotFoundError, ServiceRefusedError

ALLOW_ALL = "*"
_PYTHON_SETTING = "RUNNEL_ALLOW_PYTHON"
_SHELL_SETTING = "RUNNEL_ALLOW_SHELL"
# With these a program runs other code than its own. The first lines are for any program, also for
# the shell that starts it: bash as sh runs what PS4 says, if SHELLOPTS asks for traces.
_CODE_LOADING_VARIABLES = re.compile(
    r"(LD|DYLD|BASH|GLIBC)_\w*|PATH|SHELLOPTS|BASHOPTS|PS4|ENV|IFS|CDPATH|GCONV_PATH"
    r"|HOME|SHELL|XDG_\w*|EDITOR|VISUAL|\w*PAGER|BROWSER|LESS(OPEN|CLOSE)?|ZDOTDIR|CLASSPATH"
    r"|(PYTHON|PERL|RUBY|PHP|GEM_|NODE_|NPM_|LUA_|TCL|GIT_|SSH_|_?JAVA_|JDK_)\w*",
    re.IGNORECASE,
)


class FunctionPermissions(msgspec.Struct, frozen=True):
    """`module:name`, `module:*` (what the module defines), `package.*` (and all below), or `*`."""

    entries: tuple[str, ...] = (ALLOW_ALL,)

    def check_name(self, name: str) -> None:
        """Before anything is imported, which runs code; raises NotAllowedError."""
        module = name.partition(":")[0]
        if name not in self.entries and not self._has_module(module):
            raise NotAllowedError("the function", name, setting=_PYTHON_SETTING)

    def check_function(self, name: str, function: AnyFunction) -> None:
        """A module that is allowed may have imported others: what they define is still theirs."""
        module = getattr(function, "__module__", None)
        if name not in self.entries and not self._has_module(module or ""):
            raise NotAllowedError(
                f"a function of '{module}', which it was given as", name, setting=_PYTHON_SETTING
            )

    def with_names(self, names: Iterable[str]) -> "FunctionPermissions":
        return FunctionPermissions((*self.entries, *names))

    def with_module(self, module: str) -> "FunctionPermissions":
        return FunctionPermissions((*self.entries, f"{module}:*"))

    def _has_module(self, module: str) -> bool:
        return any(_is_module_covered(entry, module) for entry in self.entries)


class ProgramPermissions(msgspec.Struct, frozen=True):
    """Names, looked for in the PATH of the worker, or whole paths; `*` stands for all."""

    entries: tuple[str, ...] = (ALLOW_ALL,)

    @property
    def is_unrestricted(self) -> bool:
        return ALLOW_ALL in self.entries

    def find(self, program: str, *, cwd: Path) -> str:
        """Returns the path of the program; raises NotAllowedError or ProgramNotFoundError."""
        if not self.is_unrestricted and program not in self.entries:
            raise NotAllowedError("the program", program, setting=_SHELL_SETTING)
        if "/" in program:
            path = str(cwd / program)
        else:
            path = shutil.which(program, path=os.environ.get("PATH", os.defpath)) or ""
        if not path or not Path(path).exists():
            raise ProgramNotFoundError(program)
        return str(Path(path).absolute())  # a PATH may be relative, and the program runs in `cwd`

    def check_variables(self, names: Sequence[str]) -> None:
        """Where only some programs may run, none is made to load other code."""
        for name in () if self.is_unrestricted else names:
            if _CODE_LOADING_VARIABLES.fullmatch(name):
                raise NotAllowedError(
                    "a program with the variable", name, setting=_SHELL_SETTING, example="all"
                )


def _is_module_covered(entry: str, module: str) -> bool:
    if entry == ALLOW_ALL:
        return True
    if entry.endswith(":*"):
        return module == entry[:-2]
    package = entry.removesuffix(".*")
    return entry.endswith(".*") and (module == package or module.startswith(f"{package}."))


# Addresses: public ones, and those that the operator names. Inside a private network, or on the
# machine itself, a URL in a submitted document would reach what no outsider can: databases, admin
# pages, and the metadata service that hands out a cloud's keys.

Address: TypeAlias = IPv4Address | IPv6Address

ALLOW_ALL_ADDRESSES = "*"
# Where clouds keep keys, also inside networks that are private: only to be had by their name.
# 168.63.129.16 is Azure's, and looks public.
METADATA_NETWORKS = tuple(
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
_NON_PUBLIC_NETWORKS = tuple(map(ip_network, ("192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10")))
# IPv6 addresses that stand for an IPv4 address, which is in their last four bytes.
_EMBEDDED_IPV4_NETWORKS = tuple(map(ip_network, ("64:ff9b::/96", "::/96")))


class AddressPermissions(msgspec.Struct, frozen=True):
    """`entries` are networks, addresses and names of hosts that may be reached besides public
    ones; `*` allows all private ones but the metadata services.
    """

    entries: tuple[str, ...] = ()

    def check(self, host: str, address: str) -> None:
        """Raises ServiceRefusedError, which names the setting that would allow it."""
        if not self._allows(host, parse_address(address)):
            raise ServiceRefusedError(
                f"'{host}' is at {address}, which is not a public address: who runs the worker has "
                f"to allow it, with RUNNEL_ALLOW_PRIVATE_ADDRESSES={host} for example"
            )

    def _allows(self, host: str, address: Address) -> bool:
        if host.lower().rstrip(".") in map(str.lower, self.entries):
            return True
        if any(_is_in_network(address, entry) for entry in self.entries):
            return True
        if any(address in network for network in METADATA_NETWORKS):
            return False
        return is_public(address) or ALLOW_ALL_ADDRESSES in self.entries


def parse_address(text: str) -> Address:
    """Parses an address; an IPv6 address that stands for an IPv4 one becomes the IPv4 address."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]
    is_embedded = any(address in network for network in _EMBEDDED_IPV4_NETWORKS)
    if inner is None and is_embedded and int(address) > 1:
        inner = IPv4Address(int(address) & 0xFFFFFFFF)
    return address if inner is None else inner


def is_public(address: Address) -> bool:
    is_known = any(address in network for network in _NON_PUBLIC_NETWORKS)
    return (
        address.is_global and not is_known and not address.is_multicast and not address.is_reserved
    )


def _is_in_network(address: Address, entry: str) -> bool:
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:  # the name of a host
        return False
