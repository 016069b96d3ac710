"""Harnesses that inject faults into a backend under test, beyond the methods of the ports."""

import sqlite3
from pathlib import Path
from typing import Protocol

from runnel.backends.feed_log import ENTRIES_MAX
from runnel.backends.memory import MemoryBackend
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.ports import Backend
from runnel.ports.store import Lease
from runnel.testing.clock import FakeClock


class Harness(Protocol):
    """A backend under test, with methods that inject faults.

    Its limits must be the default CommitLimits.
    """

    backend: Backend

    async def abandon_lease(self, lease: Lease) -> None:
        """Simulates the death of the owner: no release, no more commits, no more renewals."""

    async def inject_message(self, partition: int, body: bytes) -> None:
        """Appends raw bytes to the inbox of the partition."""

    async def advance_time(self, seconds: float) -> None:
        """Lets time pass on the clock of the store, on which its rate buckets depend."""

    async def trim_feed(self) -> None:
        """Removes all entries of the feed except the last."""
        ...


class MemoryHarness:
    def __init__(self, backend: MemoryBackend, clock: FakeClock) -> None:
        self.backend: Backend = backend
        self._state = backend.state
        self._clock = clock

    async def abandon_lease(self, lease: Lease) -> None:
        """Does nothing: the lease of a dead owner stays in memory, but its counter no longer
        changes.
        """

    async def inject_message(self, partition: int, body: bytes) -> None:
        self._state.partitions[partition].inbox.put_raw(body)

    async def advance_time(self, seconds: float) -> None:
        await self._clock.advance(seconds)

    async def trim_feed(self) -> None:
        self._state.change_log.trim(ENTRIES_MAX)


class SqliteHarness:
    def __init__(self, backend: SqliteBackend, data_dir: Path, clock: FakeClock) -> None:
        self.backend: Backend = backend
        self._clock = clock
        self._leases = backend.leases
        self._data_dir = data_dir

    async def abandon_lease(self, lease: Lease) -> None:
        """Releases the lock, as the kernel does for a dead process."""
        self._leases.locks.unlock(lease.partition)

    async def inject_message(self, partition: int, body: bytes) -> None:
        db = sqlite3.connect(self._data_dir / "runnel.db", isolation_level=None)
        try:
            db.execute("INSERT INTO messages (partition, body) VALUES (?, ?)", (partition, body))
        finally:
            db.close()
        self._leases.read_new_messages(partition)

    async def advance_time(self, seconds: float) -> None:
        await self._clock.advance(seconds)

    async def trim_feed(self) -> None:
        db = sqlite3.connect(self._data_dir / "runnel.db", isolation_level=None)
        try:
            db.execute("DELETE FROM feed WHERE id < (SELECT max(id) FROM feed)")
        finally:
            db.close()
