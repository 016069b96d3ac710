"""Where the processes of a crash point keep what they store."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Protocol

import msgspec

from runnel.app.engine import World
from runnel.backends.sqlite.backend import SqliteBackend
from runnel.backends.sqlite.database import FILE_NAME
from runnel.core.codec import decode_entry
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped
from runnel.core.ids import ExecutionId, Nonce, Token
from runnel.engine.clock import RealClock, RealIds
from runnel.ports import Backend
from runnel.ports.store import CommitLimits
from runnel.settings.model import Settings
from simulation.crash_points.backend import CrashingBackend, Moments
from simulation.crash_points.journal import Diary

SHUTDOWN_S = 0.2

_SETTLED = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """`settled` are idempotency keys; `left_over` counts what nobody would look at again, once
    every execution is final and every process has ended in good order.
    """

    settled: list[str]
    left_over: dict[str, int]
    dead_letters: int


class Opened(msgspec.Struct, frozen=True):
    """Two ways to one store: what the engine does is counted, what is looked up is not."""

    counted: Backend
    plain: Backend


class Storage(Protocol):
    """Every point has a place of its own in it, which its diary names."""

    is_shared: bool
    """Nothing frees what a dead process held: others have to find out that it is dead."""

    def world(self) -> World: ...

    def settings(self, diary: Diary, *, is_hasty: bool) -> Settings:
        """Those of a process that soon notices what happened to others, if it `is_hasty`."""

    async def open(
        self, diary: Diary, world: World, limits: CommitLimits, moments: Moments
    ) -> Opened: ...

    def remains(self, diary: Diary) -> Remains:
        """Read from what is stored itself, as no port would show it."""

    def copy(self, source: Diary, target: Diary) -> None:
        """What is not in the diary's folder."""

    def remove(self, diary: Diary) -> None:
        """As `copy`."""


def settled_in(histories: Iterable[tuple[str, bytes]]) -> Iterator[str]:
    """The idempotency keys of nodes and items that these entries, by aggregate id, settle."""
    for aggregate_id, entry in histories:
        for event in decode_entry(entry).events:
            if isinstance(event, _SETTLED):
                id_ = ExecutionId(aggregate_id)
                yield Token(id_, event.node, event.item, 0, Nonce("")).idempotency_key


# Crash points on SQLite: each has a data dir of its own, inside the folder of its diary.

_HISTORY = "SELECT aggregate_id, entry FROM history ORDER BY aggregate_id, sequence, part"
_LEFT_OVER = {
    "unfinished executions": "SELECT count(*) FROM executions WHERE state IN ('PENDING','RUNNING')",
    "unconsumed messages": "SELECT count(*) FROM messages",
    "timers": "SELECT count(*) FROM timers",
    "histories of limits": "SELECT count(*) FROM history WHERE aggregate_id LIKE 'limit:%'",
    "partitions with an owner": "SELECT count(*) FROM partitions WHERE owner != ''",
}
_DEAD_LETTERS = "SELECT count(*) FROM dead_letters"


class DataDirs:
    """The kernel frees the lease of a dead process, and its tasks die with it."""

    is_shared = False

    def world(self) -> World:
        return World(RealClock(), RealIds())

    def settings(self, diary: Diary, *, is_hasty: bool) -> Settings:
        return Settings(data_dir=diary.data_dir, shutdown_timeout_s=SHUTDOWN_S)

    async def open(
        self, diary: Diary, world: World, limits: CommitLimits, moments: Moments
    ) -> Opened:
        backend = await SqliteBackend.open(
            diary.data_dir, clock=world.clock, ids=world.ids, limits=limits
        )
        return Opened(CrashingBackend(backend, moments), backend)

    def remains(self, diary: Diary) -> Remains:
        with closing(sqlite3.connect(diary.data_dir / FILE_NAME)) as db:
            counts = {name: _count(db, query) for name, query in _LEFT_OVER.items()}
            return Remains(
                settled=list(settled_in(db.execute(_HISTORY))),
                left_over={name: count for name, count in counts.items() if count},
                dead_letters=_count(db, _DEAD_LETTERS),
            )

    def copy(self, source: Diary, target: Diary) -> None:
        """Its files are copied with the folder."""

    def remove(self, diary: Diary) -> None:
        """As `copy`."""


def _count(db: sqlite3.Connection, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
