"""Crash points on SQLite: each has a data dir of its own, inside the folder of its diary."""

import sqlite3
from contextlib import closing

from runnel.backends.sqlite import SqliteBackend
from runnel.backends.sqlite.database import FILE_NAME
from runnel.ports.store import CommitLimits
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.engine import World
from runnel.settings import Settings
from runnel.testing.crash_points.crashing_backend import CrashingBackend
from runnel.testing.crash_points.diary import Diary
from runnel.testing.crash_points.moments import Moments
from runnel.testing.crash_points.storage import SHUTDOWN_S, Opened, Remains, settled_in

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
