"""Signal handlers that work while user code blocks the event loop; names of processes."""

import asyncio
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# The exit code of a process that a signal ended is this plus the number of the signal.
SIGNAL_EXIT_BASE = 128
EXIT_AT_SIGNAL = 3


@contextmanager
def handle_signals(
    on_signal: Callable[[int], None], before_exit: Callable[[], None]
) -> Iterator[None]:
    """Calls `on_signal` on the event loop for each SIGINT and SIGTERM inside the block.

    The third signal calls `before_exit` and exits at once, even while the loop is blocked; handlers
    of the loop itself would wait for it. In a process that user code has forked, the first signal
    has its default effect.
    """
    loop, pid = asyncio.get_running_loop(), os.getpid()
    received = 0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif received < EXIT_AT_SIGNAL:
            loop.call_soon_threadsafe(on_signal, number)
        else:
            try:
                before_exit()
            finally:
                os._exit(SIGNAL_EXIT_BASE + number)

    previous = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


# Names of processes, which appear in lists, logs and lease records.

_ENGINE_PREFIX = "engine"
_SERVING_SUFFIX = "-serves"
# Characters of a host name that must not be in the name of a process, which is part of keys.
_INVALID_CHARS = re.compile(r"[^A-Za-z0-9.]+")


def build_engine_name(nonce: str, *, serves: bool = False) -> str:
    """Returns the name of an embedded engine. `serves` marks the engine of `runnel dev`."""
    return f"{_ENGINE_PREFIX}-{os.getpid()}-{nonce}{_SERVING_SUFFIX if serves else ''}"


def is_serving_engine(name: str) -> bool:
    """Returns True if the engine of that name runs the executions that other processes submit."""
    return name.endswith(_SERVING_SUFFIX)


def build_role_name(role: str, nonce: str) -> str:
    """Returns a name like `worker@host-4711-3fa9c1`, unique even if a process id is reused."""
    host = _INVALID_CHARS.sub("_", get_host_name()) or "host"
    return f"{role}@{host}-{os.getpid()}-{nonce[:6]}"


def get_host_name() -> str:
    return socket.gethostname()


def parse_engine_pid(name: str) -> int | None:
    """Returns the process id in the name of an embedded engine; None for any other name."""
    prefix, _, suffix = name.partition("-")
    pid = suffix.partition("-")[0]
    return int(pid) if prefix == _ENGINE_PREFIX and pid.isdecimal() else None
