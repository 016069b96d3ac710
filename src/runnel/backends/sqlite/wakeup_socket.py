"""Wakes the owner of a partition in another process when its inbox has new messages.

A lost wake-up only causes a delay: the owner polls its inbox every second.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from runnel.errors import StoreError

# The maximum length of a socket path. The kernel allows 108 bytes on Linux and 104 bytes on macOS,
# including the final zero.
SOCKET_PATH_BYTES_MAX = 100
# The maximum number of wake-ups that one callback reads. The event loop calls again if there are
# more.
WAKEUPS_READ_MAX = 64


class WakeupListener:
    """Receives wake-ups for one partition on a datagram socket in the data directory."""

    def __init__(self, folder: Path, partition: int, on_wakeup: Callable[[], None]) -> None:
        self._path = _build_socket_path(folder, partition)
        self._on_wakeup = on_wakeup
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None

    def open(self) -> None:
        if not _is_short_enough(self._path):
            return
        try:
            self._socket = _bind_socket(self._path)
        except OSError:
            return  # for example, a file system without sockets: the owner still polls every second
        self._loop.add_reader(self._socket.fileno(), self._receive)

    def close(self) -> None:
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        with suppress(OSError):  # a socket file without a listener does no harm
            self._path.unlink()

    def _receive(self) -> None:
        if self._socket is not None:
            _drain_socket(self._socket)
            self._on_wakeup()


class WakeupSender:
    """Sends wake-ups to the owners of partitions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError as error:
            raise StoreError(f"a Unix socket can't be created: {error}") from error
        self._socket.setblocking(False)

    def notify(self, partition: int) -> None:
        path = _build_socket_path(self._folder, partition)
        if not _is_short_enough(path):
            return
        try:
            self._socket.sendto(b"!", str(path))
        except OSError:
            return  # no process owns the partition, or its owner has unread wake-ups

    def close(self) -> None:
        self._socket.close()


def _build_socket_path(folder: Path, partition: int) -> Path:
    return folder / f"p{partition}.sock"


def _is_short_enough(path: Path) -> bool:
    return len(str(path).encode()) <= SOCKET_PATH_BYTES_MAX


def _bind_socket(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind(str(path))
    except OSError:
        bound.close()
        raise
    return bound


def _drain_socket(sock: socket.socket) -> None:
    for _ in range(WAKEUPS_READ_MAX):
        try:
            sock.recv(1)
        except BlockingIOError:
            return
