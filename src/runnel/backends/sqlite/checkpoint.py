"""Copies the write-ahead log back into the database, on a thread of its own.

Writers never do it themselves: a checkpoint waits for the disk, and they run on the event loop.
"""

import sqlite3
import threading
from pathlib import Path

from runnel.backends.sqlite.database import Durability, connect, describe
from runnel.errors import StoreError

# Rows written between two checkpoints: about 4 MB of log.
ROWS_BETWEEN = 4_000
# So many in a row may fail before a writer is told: about 20 MB of log.
FAILURES_MAX = 5
# Under steady writing a passive checkpoint never gets to the end, and the log only grows: from
# here on (64 MB) one that holds the writers up for a moment lets it begin anew: for 8 to 14 ms
# on average and 33 at most, and for 42 to 52 and 67 when the file was cut back to nothing, too.
LOG_PAGES_MAX = 16_384
# How long that may wait for other processes; it is tried again with the next checkpoint.
CUT_BUSY_MS = 200


class Checkpointer:
    """While `is_cutting` its own process's writer must keep away.

    Left to itself a busy writer takes the lock again before a waiting checkpoint has woken up:
    with a bound of 0.1 MB the log grew to 9-56 MB, and to 1-3 MB since the writer gives way.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._durability = durability
        self._rows = 0
        self._is_wanted = threading.Event()
        self.is_cutting = False
        self._is_stopped = False
        self._problem: StoreError | None = None
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="runnel-checkpoint", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def note(self, rows: int) -> None:
        """`rows` is the total that the writing connection has changed so far."""
        if rows - self._rows >= ROWS_BETWEEN:
            self._rows = rows
            self._is_wanted.set()

    def check(self) -> None:
        """Raises what keeps going wrong: the log must not grow in silence.

        Once is no reason: whoever writes next would pay for it with its partition.
        """
        if self._failures >= FAILURES_MAX and self._problem is not None:
            self._failures, problem = 0, self._problem
            raise problem

    def stop(self) -> None:
        self._is_stopped = True
        self._is_wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        db: sqlite3.Connection | None = None
        try:
            while self._is_wanted.wait() and not self._is_stopped:
                self._is_wanted.clear()
                db = self._checkpoint(db)
        finally:
            if db is not None:
                db.close()

    def _checkpoint(self, db: sqlite3.Connection | None) -> sqlite3.Connection | None:
        """The connection to use next time: None when there is none yet."""
        try:
            db = db or connect(self._path, self._durability)
            _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > LOG_PAGES_MAX:
                self._cut(db)
            self._failures = 0
        except sqlite3.Error as error:
            self._problem = describe(self._path, error)
            self._failures += 1
        return db

    def _cut(self, db: sqlite3.Connection) -> None:
        db.execute(f"PRAGMA busy_timeout = {CUT_BUSY_MS}")
        self.is_cutting = True
        try:
            db.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
        finally:
            self.is_cutting = False
