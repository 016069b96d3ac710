"""The storage that the processes of a crash point use."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Protocol

import msgspec

from runnel.app.embedded_engine import ClockAndIds
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import FILE_NAME
from runnel.core.codec import decode_entry
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped
from runnel.core.ids import ExecutionId, Nonce, TaskToken
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports import Backend
from runnel.ports.store import CommitLimits
from runnel.settings.model import Settings
from simulation.crash_points.backend import CrashingBackend, CrashPointCounter
from simulation.crash_points.journal import RunJournal

SHUTDOWN_S = 0.2

_FINAL_EVENTS = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)


class StorageSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the store at one time.

    `settled` are the idempotency keys of settled nodes and items. `left_over` counts entries that
    no process would ever read again after all executions are final and all processes have shut
    down.
    """

    settled: list[str]
    left_over: dict[str, int]
    dead_letters: int


class OpenedBackends(msgspec.Struct, frozen=True):
    """Two backends of one store.

    Calls of the engine's backend are crash points, calls of `plain` are not.
    """

    instrumented: Backend
    plain: Backend


class CrashPointStorage(Protocol):
    """Storage with separate data for every crash point, which is identified by its journal."""

    is_shared: bool
    """True if other processes must detect a dead process before its leases are free."""

    def make_world(self) -> ClockAndIds: ...

    def settings(self, journal: RunJournal, *, detects_failures_fast: bool) -> Settings:
        """Returns the settings of a process; short timeouts if `detects_failures_fast`."""

    async def open(
        self,
        journal: RunJournal,
        world: ClockAndIds,
        limits: CommitLimits,
        points: CrashPointCounter,
    ) -> OpenedBackends: ...

    def summarize(self, journal: RunJournal, *, engine: str) -> StorageSummary:
        """Returns a summary of the stored data, which it reads without the ports.

        `engine` is the name of the engine that has shut down, or that starts now.
        """

    def copy(self, source: RunJournal, target: RunJournal) -> None:
        """Copies the data of a crash point that is not in the folder of its journal."""

    def remove(self, journal: RunJournal) -> None:
        """Removes the data of a crash point that is not in the folder of its journal."""


def find_settled_keys(histories: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """Yields the idempotency keys of nodes and items that these entries settle."""
    for aggregate_id, entry in histories:
        for event in decode_entry(entry).events:
            if isinstance(event, _FINAL_EVENTS):
                id_ = ExecutionId(aggregate_id)
                yield TaskToken(id_, event.node, event.item, 0, Nonce("")).idempotency_key


_HISTORY_QUERY = "SELECT aggregate_id, entry FROM history ORDER BY aggregate_id, sequence, part"
_LEFT_OVER_QUERIES = {
    "unfinished executions": "SELECT count(*) FROM executions WHERE state IN ('PENDING','RUNNING')",
    "unconsumed messages": "SELECT count(*) FROM messages",
    "timers": "SELECT count(*) FROM timers",
    "histories of limits": "SELECT count(*) FROM history WHERE aggregate_id LIKE 'limit:%'",
    # A partition without work may keep the name of a dead owner. No process adopts it, and a later
    # one uses it as its home.
    "partitions with an owner": "SELECT count(*) FROM partitions WHERE owner = :engine",
}
_DEAD_LETTERS_QUERY = "SELECT count(*) FROM dead_letters"


class DataDirStorage:
    """Storage in SQLite, in the folder of the journal.

    The kernel frees the lease of a dead process.
    """

    is_shared = False

    def make_world(self) -> ClockAndIds:
        return ClockAndIds(RealClock(), RandomIdGenerator())

    def settings(self, journal: RunJournal, *, detects_failures_fast: bool) -> Settings:
        return Settings(data_dir=journal.data_dir, shutdown_timeout_s=SHUTDOWN_S)

    async def open(
        self,
        journal: RunJournal,
        world: ClockAndIds,
        limits: CommitLimits,
        points: CrashPointCounter,
    ) -> OpenedBackends:
        backend = await SqliteBackend.open(
            journal.data_dir, clock=world.clock, ids=world.ids, limits=limits
        )
        return OpenedBackends(CrashingBackend(backend, points), backend)

    def summarize(self, journal: RunJournal, *, engine: str) -> StorageSummary:
        with closing(sqlite3.connect(journal.data_dir / FILE_NAME)) as db:
            counts = {
                name: _count(db, query, engine=engine) for name, query in _LEFT_OVER_QUERIES.items()
            }
            return StorageSummary(
                settled=list(find_settled_keys(db.execute(_HISTORY_QUERY))),
                left_over={name: count for name, count in counts.items() if count},
                dead_letters=_count(db, _DEAD_LETTERS_QUERY),
            )

    def copy(self, source: RunJournal, target: RunJournal) -> None:
        """Does nothing: the files are copied with the folder."""

    def remove(self, journal: RunJournal) -> None:
        """Does nothing: the files are removed with the folder."""


def _count(db: sqlite3.Connection, query: str, **values: str) -> int:
    return int(db.execute(query, values).fetchone()[0])
