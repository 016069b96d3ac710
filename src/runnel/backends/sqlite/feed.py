"""The feed of a database file: what this process writes is told at once, others' a moment later."""

import asyncio
import socket
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from runnel.backends.feed_log import (
    ENTRIES_MAX,
    PAGE_ENTRIES_MAX,
    FeedEntry,
    build_end_position,
    build_feed_page,
    parse_position,
)
from runnel.backends.sqlite.database import SQL, SqliteReader
from runnel.errors import StoreError
from runnel.ports.clock import Clock
from runnel.ports.feed import FeedPage, FeedPosition

# How soon the commit of another process is seen: one look is a query by key, of 10 µs.
POLL_INTERVAL_S = 0.1
# A delete takes as long as many inserts.
TRIM_INTERVAL_ENTRIES = 500


def write_feed_entries(db: sqlite3.Connection, texts: Sequence[str]) -> None:
    """Within the transaction of what they tell."""
    for text in texts:
        last = db.execute(SQL["add_feed_entry"], (text,)).lastrowid or 0
        if last % TRIM_INTERVAL_ENTRIES == 0:
            db.execute(SQL["trim_feed"], (last - ENTRIES_MAX,))


class SqliteFeed:
    """`arrived` is set when this process has written something."""

    def __init__(self, reader: SqliteReader, clock: Clock) -> None:
        self.arrived = asyncio.Event()
        self._reader = reader
        self._clock = clock

    async def end(self) -> FeedPosition:
        return self._read_end()

    async def read(self, after: FeedPosition, *, limit: int, wait_s: float) -> FeedPage:
        deadline = self._clock.monotonic() + wait_s
        while True:
            # Before the look: a writer in another thread may be done behind it.
            self.arrived.clear()
            page = self._read_page(after, limit)
            left_s = deadline - self._clock.monotonic()
            if page.changes or page.has_gap or left_s <= 0:
                return page
            await self._clock.wait(self.arrived, min(left_s, POLL_INTERVAL_S))

    def _read_end(self) -> FeedPosition:
        ((number, text),) = self._reader.rows("last_feed_entry")
        return build_end_position(FeedEntry(str(number), text))

    def _read_page(self, after: FeedPosition, limit: int) -> FeedPage:
        place = parse_position(after)
        if place is not None and place.entry_id.isdecimal():
            rows = self._reader.rows(
                "list_feed", (int(place.entry_id), min(limit, PAGE_ENTRIES_MAX) + 1)
            )
            entries = [FeedEntry(str(number), text) for number, text in rows]
            page = build_feed_page(after, place, entries, limit)
            if page is not None:
                return page
        return FeedPage(changes=(), position=self._read_end(), has_gap=True)


# Tells the owner of a partition, in another process, that there is something in its inbox.
#
# A missed ring costs time and nothing else: whoever waits looks again within a second.

# The kernel's limit is 108 bytes on Linux and 104 on macOS, with the final zero.
SOCKET_PATH_BYTES_MAX = 100
# Rings that one look at the inbox answers; the loop calls again when there are more.
WAKEUPS_READ_MAX = 64


class WakeupListener:
    """The owner's end: a datagram socket in the data directory."""

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
            return  # a file system without sockets, say: the look every second has to do
        self._loop.add_reader(self._socket.fileno(), self._receive)

    def close(self) -> None:
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        with suppress(OSError):  # a socket that nobody listens to does no harm
            self._path.unlink()

    def _receive(self) -> None:
        if self._socket is not None:
            _drain_socket(self._socket)
            self._on_wakeup()


class WakeupSender:
    """The sender's end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError as error:
            raise StoreError(f"no socket can be made: {error}") from error
        self._socket.setblocking(False)

    def notify(self, partition: int) -> None:
        path = _build_socket_path(self._folder, partition)
        if not _is_short_enough(path):
            return
        try:
            self._socket.sendto(b"!", str(path))
        except OSError:
            return  # nobody owns it now, or its owner has rings enough to hear

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
