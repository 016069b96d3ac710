"""SIGINT and SIGTERM, handled also while user code keeps the event loop busy; process names."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SIGNAL_EXIT_BASE = 128
EXIT_AT_SIGNAL = 3


@contextmanager
def handle_signals(
    on_signal: Callable[[int], None], before_exit: Callable[[], None]
) -> Iterator[None]:
    """Inside the block, `on_signal` is called on the loop with the number of each signal.

    The third one ends the process at once, after `before_exit`, whatever the loop does: so these
    are not handlers of the loop, which would wait for it. A process that user code forks is ended
    by the first, as it would be anywhere else.
    """
    loop, pid = asyncio.get_running_loop(), os.getpid()
    heard = 0

    def hear(number: int, _frame: FrameType | None) -> None:
        nonlocal heard
        heard += 1
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif heard < EXIT_AT_SIGNAL:
            loop.call_soon_threadsafe(on_signal, number)
        else:
            try:
                before_exit()
            finally:
                os._exit(SIGNAL_EXIT_BASE + number)

    previous = {number: signal.signal(number, hear) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


# The name of a process tells which one it is: that is what a person wants to know.

_ENGINE_PREFIX = "engine"
# What a host may be called in a name that is shown, and is part of keys.
_INVALID_CHARS = re.compile(r"[^A-Za-z0-9.]+")


def build_engine_name(nonce: str) -> str:
    return f"{_ENGINE_PREFIX}-{os.getpid()}-{nonce}"


def build_role_name(role: str, nonce: str) -> str:
    """`worker@host-4711-3fa9c1`: unique, also after a restart that gets the same process id."""
    host = _INVALID_CHARS.sub("_", get_host_name()) or "host"
    return f"{role}@{host}-{os.getpid()}-{nonce[:6]}"


def get_host_name() -> str:
    return socket.gethostname()


def parse_engine_pid(name: str) -> int | None:
    """The process of an embedded engine by its name; None for any other name."""
    prefix, _, suffix = name.partition("-")
    pid = suffix.partition("-")[0]
    return int(pid) if prefix == _ENGINE_PREFIX and pid.isdecimal() else None
