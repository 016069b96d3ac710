"""Where the processes of a crash point keep what they store."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Protocol

import msgspec

from runnel.app.engine import ClockAndIds
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
    """`settled` are idempotency keys; `left_over` counts what nobody would look at again, once
    every execution is final and every process has ended in good order.
    """

    settled: list[str]
    left_over: dict[str, int]
    dead_letters: int


class OpenedBackends(msgspec.Struct, frozen=True):
    """Two ways to one store: what the engine does is counted, what is looked up is not."""

    instrumented: Backend
    plain: Backend


class CrashPointStorage(Protocol):
    """Every point has a place of its own in it, which its diary names."""

    is_shared: bool
    """Nothing frees what a dead process held: others have to find out that it is dead."""

    def make_world(self) -> ClockAndIds: ...

    def settings(self, journal: RunJournal, *, detects_failures_fast: bool) -> Settings:
        """Those of a process that soon notices what happened to others, if it
        `detects_failures_fast`.
        """

    async def open(
        self,
        journal: RunJournal,
        world: ClockAndIds,
        limits: CommitLimits,
        points: CrashPointCounter,
    ) -> OpenedBackends: ...

    def summarize(self, journal: RunJournal) -> StorageSummary:
        """Read from what is stored itself, as no port would show it."""

    def copy(self, source: RunJournal, target: RunJournal) -> None:
        """What is not in the diary's folder."""

    def remove(self, journal: RunJournal) -> None:
        """As `copy`."""


def find_settled_keys(histories: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """The idempotency keys of nodes and items that these entries, by aggregate id, settle."""
    for aggregate_id, entry in histories:
        for event in decode_entry(entry).events:
            if isinstance(event, _FINAL_EVENTS):
                id_ = ExecutionId(aggregate_id)
                yield TaskToken(id_, event.node, event.item, 0, Nonce("")).idempotency_key


# Crash points on SQLite: each has a data dir of its own, inside the folder of its diary.

_HISTORY_QUERY = "SELECT aggregate_id, entry FROM history ORDER BY aggregate_id, sequence, part"
_LEFT_OVER_QUERIES = {
    "unfinished executions": "SELECT count(*) FROM executions WHERE state IN ('PENDING','RUNNING')",
    "unconsumed messages": "SELECT count(*) FROM messages",
    "timers": "SELECT count(*) FROM timers",
    "histories of limits": "SELECT count(*) FROM history WHERE aggregate_id LIKE 'limit:%'",
    "partitions with an owner": "SELECT count(*) FROM partitions WHERE owner != ''",
}
_DEAD_LETTERS_QUERY = "SELECT count(*) FROM dead_letters"


class DataDirStorage:
    """The kernel frees the lease of a dead process, and its tasks die with it."""

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

    def summarize(self, journal: RunJournal) -> StorageSummary:
        with closing(sqlite3.connect(journal.data_dir / FILE_NAME)) as db:
            counts = {name: _count(db, query) for name, query in _LEFT_OVER_QUERIES.items()}
            return StorageSummary(
                settled=list(find_settled_keys(db.execute(_HISTORY_QUERY))),
                left_over={name: count for name, count in counts.items() if count},
                dead_letters=_count(db, _DEAD_LETTERS_QUERY),
            )

    def copy(self, source: RunJournal, target: RunJournal) -> None:
        """Its files are copied with the folder."""

    def remove(self, journal: RunJournal) -> None:
        """As `copy`."""


def _count(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
