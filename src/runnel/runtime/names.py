"""The name of an engine tells which process it is: that is what a person wants to know."""

import os

_PREFIX = "engine"


def engine_name(nonce: str) -> str:
    return f"{_PREFIX}-{os.getpid()}-{nonce}"


def pid_of(name: str) -> int | None:
    """The process of an engine by its name; None for a name that was not made here."""
    prefix, _, rest = name.partition("-")
    pid = rest.partition("-")[0]
    return int(pid) if prefix == _PREFIX and pid.isdecimal() else None
