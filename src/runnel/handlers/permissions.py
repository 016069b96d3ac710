"""Permissions: the functions, programs and addresses that an operator allows workflows to use.

A workflow can't extend its permissions.
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
# Environment variables that make a program run other code. The variables in the first two lines
# affect every program, and the shell that starts the program: bash, run as sh, evaluates PS4 if
# SHELLOPTS enables traces.
_CODE_LOADING_VARIABLES = re.compile(
    r"(LD|DYLD|BASH|GLIBC)_\w*|PATH|SHELLOPTS|BASHOPTS|PS4|ENV|IFS|CDPATH|GCONV_PATH"
    r"|HOME|SHELL|XDG_\w*|EDITOR|VISUAL|\w*PAGER|BROWSER|LESS(OPEN|CLOSE)?|ZDOTDIR|CLASSPATH"
    r"|(PYTHON|PERL|RUBY|PHP|GEM_|NODE_|NPM_|LUA_|TCL|GIT_|SSH_|_?JAVA_|JDK_)\w*",
    re.IGNORECASE,
)


class FunctionPermissions(msgspec.Struct, frozen=True):
    """The functions that the handler `python` may call.

    Entries are `module:name`, `module:*` (functions that the module defines), `package.*` (all
    modules of the package) or `*` (all). `folder` also allows each Python file and each package in
    a folder. A file that is added later is allowed as well.
    """

    entries: tuple[str, ...] = (ALLOW_ALL,)
    folder: Path | None = None

    def check_name(self, name: str) -> None:
        """Raises NotAllowedError if the name is not allowed.

        Callers check the name before the import, because an import runs code.
        """
        module = name.partition(":")[0]
        if name not in self.entries and not self._has_module(module):
            raise NotAllowedError("the function", name, setting=_name_python_settings(name))

    def check_function(self, name: str, function: AnyFunction) -> None:
        """Raises NotAllowedError if the function is defined in a module that is not allowed.

        An allowed module may have imported functions of other modules.
        """
        module = getattr(function, "__module__", None)
        if name not in self.entries and not self._has_module(module or ""):
            raise NotAllowedError(
                f"a function of '{module}', imported as", name, setting=_PYTHON_SETTING
            )

    def with_names(self, names: Iterable[str]) -> "FunctionPermissions":
        return msgspec.structs.replace(self, entries=(*self.entries, *names))

    def _has_module(self, module: str) -> bool:
        if any(_is_module_covered(entry, module) for entry in self.entries):
            return True
        return self.folder is not None and _is_module_in_folder(self.folder, module)


class ProgramPermissions(msgspec.Struct, frozen=True):
    """The programs that the handler `shell` may run.

    Entries are absolute paths, names of programs in the worker's PATH, or `*` (all).
    """

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
        # PATH may contain relative entries, but the program runs in `cwd`: returns a full path.
        return str(Path(path).absolute())

    def check_variables(self, names: Sequence[str]) -> None:
        """Raises NotAllowedError for variables that load other code, if programs are restricted."""
        for name in () if self.is_unrestricted else names:
            if _CODE_LOADING_VARIABLES.fullmatch(name):
                raise NotAllowedError(
                    "a program with the variable", name, setting=_SHELL_SETTING, example="all"
                )


def _name_python_settings(name: str) -> str:
    return f"the option --app {name.partition(':')[0]}, or with {_PYTHON_SETTING}"


def _is_module_covered(entry: str, module: str) -> bool:
    if entry == ALLOW_ALL:
        return True
    if entry.endswith(":*"):
        return module == entry[:-2]
    package = entry.removesuffix(".*")
    return entry.endswith(".*") and (module == package or module.startswith(f"{package}."))


def _is_module_in_folder(folder: Path, module: str) -> bool:
    first, _, others = module.partition(".")
    if not first.isidentifier():
        return False
    is_file = not others and (folder / f"{first}.py").is_file()
    return is_file or (folder / first / "__init__.py").is_file()


# Workflows may reach public addresses, and addresses that the operator names. Without this rule, a
# URL in a submitted workflow could reach services on the machine or in a private network:
# databases, admin pages, and the metadata service of a cloud, which provides keys.

Address: TypeAlias = IPv4Address | IPv6Address

ALLOW_ALL_ADDRESSES = "*"
# Networks of the metadata services of clouds, which provide keys. The entry `*` does not allow
# these networks; the operator must name them. Azure uses 168.63.129.16, which looks public.
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
# Networks that are not public, although Python before 3.12.4 reports them as public.
_NON_PUBLIC_NETWORKS = tuple(map(ip_network, ("192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10")))
# IPv6 networks whose last four bytes are an IPv4 address.
_EMBEDDED_IPV4_NETWORKS = tuple(map(ip_network, ("64:ff9b::/96", "::/96")))


class AddressPermissions(msgspec.Struct, frozen=True):
    """The addresses that workflows may reach in addition to public addresses.

    Entries are networks, addresses and host names. `*` allows all private addresses except the
    metadata services of clouds.
    """

    entries: tuple[str, ...] = ()

    def check(self, host: str, address: str) -> None:
        """Raises ServiceRefusedError if the address is not allowed.

        The message names the setting that would allow the address.
        """
        if not self._allows(host, parse_address(address)):
            raise ServiceRefusedError(
                f"'{host}' has the address {address}, which is not public; the operator of the "
                f"worker can allow it, for example with RUNNEL_ALLOW_PRIVATE_ADDRESSES={host}"
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
    """Parses an address; returns the IPv4 address that an IPv6 address contains, if any."""
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
    except ValueError:  # a host name
        return False
