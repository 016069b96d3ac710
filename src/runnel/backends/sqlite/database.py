"""Opens and checks the database file; translates its errors, converts rows and reads data."""

import atexit
import errno
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

from runnel.backends.row_codec import Column, RowValues, encode
from runnel.backends.sql_files import load_named_statements, load_statements
from runnel.core.effects import DeadLetter, TimerKey, TimerKind
from runnel.core.ids import ExecutionId, NodeId
from runnel.errors import InputError, StoreError
from runnel.ports.store import TimerRecord


def load_schema() -> list[str]:
    """Returns the statements of the current schema, for a new file."""
    return load_statements(Path(__file__).with_name("schema.sql"))


def load_upgrade(version: int) -> list[str]:
    """Returns the statements that upgrade a file from the previous version to `version`."""
    return load_statements(Path(__file__).with_name(f"upgrade_{version}.sql"))


SQL = load_named_statements(Path(__file__).with_name("queries.sql"))


Durability: TypeAlias = Literal["process", "power"]

FILE_NAME = "runnel.db"
SCHEMA_VERSION = 6
OPEN_BUSY_TIMEOUT_MS = 5_000
CACHED_STATEMENTS_MAX = 256
# The log file keeps up to this size when it restarts (see `Checkpointer`), because overwriting
# existing pages is faster than allocating new pages.
WAL_BYTES_MAX = 64 * 1024 * 1024
# The size of a log that short calls leave to the next one.
IDLE_LOG_BYTES_MAX = 4 * 1024 * 1024
# With NORMAL, a killed process loses nothing. A power failure can lose the last commits, but never
# a part of a commit. With FULL, SQLite runs one fsync per transaction.
_SYNCHRONOUS: dict[Durability, str] = {"process": "NORMAL", "power": "FULL"}


class DiskFullError(StoreError):
    """Raised if the disk has no room for the database or for its log."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"the disk that holds {path} is full: free some space")


def open_for_writing(data_dir: Path, durability: Durability) -> sqlite3.Connection:
    """Returns the writing connection; creates the folder and the schema if they are missing.

    Raises InputError if the folder can't be used, and StoreError if the database can't be opened.
    """
    _make_folder(data_dir)
    path = data_dir / FILE_NAME
    with lock_data_dir(data_dir), translate_errors(path):
        db = connect(path, durability)
        try:
            _check_schema(db, path)
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_MAX}")
            db.execute("PRAGMA busy_timeout = 0")
        except BaseException:
            db.close()
            raise
    return db


def open_on_full_disk(path: Path) -> sqlite3.Connection:
    """Opens the database of a full disk for a command that only reads.

    Processes usually share an index of the log in a file, for which a full disk has no room. With
    an exclusive lock, SQLite keeps the index in memory. Until the connection is closed, no other
    process can open the database. Raises StoreError if another process has it open.
    """
    with translate_errors(path):
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA wal_autocheckpoint = 0")
            if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA_VERSION:
                raise DiskFullError(path)  # the schema can't be upgraded
        except BaseException:
            db.close()
            raise
    return db


@contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[None]:
    """Holds an exclusive lock while a process opens the database.

    The lock is needed because switching a new file to WAL mode fails at once while another process
    does the same.
    """
    try:
        lock = (data_dir / "open.lock").open("w")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(data_dir / FILE_NAME) from error
        raise
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # The lock is released explicitly, because a child process that was forked in the
            # meantime also has the file open.
            fcntl.flock(lock, fcntl.LOCK_UN)


def connect(path: Path, durability: Durability) -> sqlite3.Connection:
    """Opens a connection that several threads can use, but only one at a time."""
    db = sqlite3.connect(
        path, isolation_level=None, cached_statements=CACHED_STATEMENTS_MAX, check_same_thread=False
    )
    try:
        db.execute(f"PRAGMA busy_timeout = {OPEN_BUSY_TIMEOUT_MS}")
        # Only a file without pages takes this setting. On any other file, the statement writes.
        if not _read_size(path):
            db.execute("PRAGMA auto_vacuum = INCREMENTAL")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
    except BaseException:
        db.close()
        raise
    return db


def is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return bool(code & 0xFF == sqlite3.SQLITE_BUSY)


def _check_empty(db: sqlite3.Connection, path: Path) -> None:
    if db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StoreError(
            f"{path} is the database of another program: choose another data directory"
        )


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turns errors of the SQLite driver into StoreError, which names the file and a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise build_store_error(path, error) from error


def build_store_error(path: Path, error: sqlite3.Error) -> StoreError:
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return StoreError(f"the store {path} is closed")
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return StoreError(
            f"{path} is damaged or not a SQLite database ({error}): restore it from a copy, "
            "or move it away to start with an empty database"
        )
    extended_code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_FULL or extended_code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return DiskFullError(path)
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}:
        return StoreError(f"{path} can't be written ({error}): check its owner and permissions")
    return StoreError(f"the store {path} failed: {error}")


def _make_folder(data_dir: Path) -> None:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(
            f"the data directory {data_dir} is a file, expected a folder: choose another path"
        ) from error
    except OSError as error:
        raise InputError(
            f"the data directory {data_dir} can't be created: "
            f"{os.strerror(error.errno or errno.EIO)}"
        ) from error
    if not os.access(data_dir, os.W_OK | os.X_OK):
        raise InputError(
            f"the data directory {data_dir} is not writable: change its owner or choose another one"
        )


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Creates or upgrades the schema, and raises StoreError if the file can't be used.

    Writes nothing if the schema is current, so that a full disk can be read. If two processes open
    the file at the same time, one process waits and then reads the complete schema.
    """
    if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{path} has schema version {version}, this Runnel knows up to "
                f"{SCHEMA_VERSION}: upgrade Runnel, or choose another data directory"
            )
        if version == 0:
            _check_empty(db, path)
            for statement in load_schema():
                db.execute(statement)
        for upgrade in range(version + 1, SCHEMA_VERSION + 1) if version else ():
            for statement in load_upgrade(upgrade):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


# -- row codecs --------------------------------------------------------------------------------


def build_timer_row(partition: int, timer: TimerRecord) -> RowValues:
    return (*build_timer_key_row(partition, timer.key), timer.due, timer.attempt)


def build_timer_key_row(partition: int, key: TimerKey) -> RowValues:
    return (partition, key.execution_id, key.node_id, key.item, key.kind.value)


def decode_timer_row(row: tuple[str, str, int, str, float, int]) -> TimerRecord:
    execution_id, node_id, item, kind, due, attempt = row
    key = TimerKey(ExecutionId(execution_id), NodeId(node_id), item, TimerKind(kind))
    return TimerRecord(key=key, due=due, attempt=attempt)


def build_letter_row(letter: DeadLetter) -> RowValues:
    return (letter.rejected_at, encode(letter))


# The reading connection reads committed data and never waits for a writer.


class SqliteReader:
    def __init__(
        self,
        path: Path,
        durability: Durability,
        db: sqlite3.Connection | None = None,
        *,
        keeps_log: bool = False,
    ) -> None:
        """Opens a connection, unless `db` is given; see IdleConnection for `keeps_log`."""
        self._path = path
        self._keeps_log = keeps_log
        if db is not None:
            self._db = db
            return
        with translate_errors(path):
            self._db = connect(path, durability)
            try:
                self._db.execute("PRAGMA query_only = ON")
            except BaseException:
                self._db.close()
                raise

    def rows(
        self, name: str, values: Sequence[Column] | Mapping[str, Column] = ()
    ) -> list[tuple[Any, ...]]:
        """Returns all rows at once, because an open cursor would keep the write-ahead log from
        restarting.
        """
        try:
            return self._db.execute(SQL[name], values).fetchall()
        except sqlite3.Error as error:
            raise build_store_error(self._path, error) from error

    def close(self) -> None:
        if self._keeps_log:
            _idle_connection.replace(self._path, self._db)
        else:
            self._db.close()


class IdleConnection:
    """One connection that this process keeps open between short calls, such as `runnel.run`.

    When the last connection closes, SQLite ends its log: it syncs the disk three times, and twice
    more for the log of the next call. That took 2 to 4 ms of a call. Nothing reads through the idle
    connection. It is closed once the log is large, for another database, and at exit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        # Connections of the parent process. To close them could end the parent's log.
        self._inherited: list[sqlite3.Connection] = []

    def replace(self, path: Path, db: sqlite3.Connection) -> None:
        """Closes the connection, or keeps it open instead of the one that is kept."""
        file, log_bytes = _identify_file(path), _read_size(path.with_name(f"{path.name}-wal"))
        with self._lock:
            if self._db is not None and self._file == file and log_bytes <= IDLE_LOG_BYTES_MAX:
                db.close()
                return
            former, self._db, self._file = self._db, db, file
            if former is not None:
                former.close()
            if log_bytes > IDLE_LOG_BYTES_MAX:
                self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def leave_to_parent(self) -> None:
        """Forgets the connection, in a forked child."""
        self._lock = threading.Lock()
        if self._db is not None:
            self._inherited.append(self._db)
        self._db = self._file = None

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = self._file = None


def _identify_file(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _read_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


_idle_connection = IdleConnection()
atexit.register(_idle_connection.close)
os.register_at_fork(after_in_child=_idle_connection.leave_to_parent)
