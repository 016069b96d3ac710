"""The name of a process tells which one it is: that is what a person wants to know."""

import os
import re
import socket

_ENGINE = "engine"
# What a host may be called in a name that is shown, and is part of keys.
_UNFIT = re.compile(r"[^A-Za-z0-9.]+")


def engine_name(nonce: str) -> str:
    return f"{_ENGINE}-{os.getpid()}-{nonce}"


def role_name(role: str, nonce: str) -> str:
    """`worker@host-4711-3fa9c1`: unique, also after a restart that gets the same process id."""
    host = _UNFIT.sub("_", host_name()) or "host"
    return f"{role}@{host}-{os.getpid()}-{nonce[:6]}"


def host_name() -> str:
    return socket.gethostname()


def pid_of(name: str) -> int | None:
    """The process of an embedded engine by its name; None for any other name."""
    prefix, _, rest = name.partition("-")
    pid = rest.partition("-")[0]
    return int(pid) if prefix == _ENGINE and pid.isdecimal() else None
