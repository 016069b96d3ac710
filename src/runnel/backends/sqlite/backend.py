"""A backend in one folder: a SQLite database, blobs as files, tasks in memory.

Durable: partitions, history, executions, definitions, timers, messages, dead letters, records,
buckets.
Volatile by design: queued and claimed tasks, reports on their way to the owner, concurrency keys
and what they are told. They belong
to the process that owns the partition; when it dies, its successor finds them unknown and issues
them anew. That halves the writes of every task, and costs a repeated attempt after a crash.
In between: which tasks run is in a mapped file, which a crash of the process does not lose.
"""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from runnel.backends.blob_files import FileBlobs
from runnel.backends.local.task_board import TaskBoard
from runnel.backends.local.tasks import LocalTasks, LocalWindows
from runnel.backends.sqlite.archive import SqliteArchive, SqliteRetention
from runnel.backends.sqlite.database import FILE_NAME, Durability, Reader, prepare
from runnel.backends.sqlite.feed import Ringer, SqliteFeed
from runnel.backends.sqlite.inbox import LimitMail, Messages, SqliteMailbox
from runnel.backends.sqlite.leases import Leases
from runnel.backends.sqlite.partition import Limits, OwnedPartitions, Routes
from runnel.backends.sqlite.records import SqliteBuckets, SqliteRecords, SqliteResults
from runnel.backends.sqlite.store import Commits, SqliteStore
from runnel.backends.sqlite.writer import Writer
from runnel.ports.archive import Archive, Retention
from runnel.ports.clock import Clock, Ids
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import CommitLimits, Mailbox, Store, TaskQueue

_LIMITS = CommitLimits(tasks_are_written=False)


class SqliteBackend:
    """Made by `open`; belongs to the event loop that opened it."""

    store: Store
    mailbox: Mailbox
    tasks: TaskQueue
    archive: Archive
    blobs: BlobStore
    records: Records
    windows: RequestWindows
    feed: Feed
    leases: Leases
    retention: Retention

    def __init__(self, writer: Writer, reader: Reader, ringer: Ringer) -> None:
        self._writer = writer
        self._reader = reader
        self._ringer = ringer

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        clock: Clock,
        ids: Ids,
        durability: Durability = "process",
        limits: CommitLimits = _LIMITS,
    ) -> Self:
        """Raises InputError for a folder that can't be used, StoreError for a bad database."""
        path = data_dir / FILE_NAME
        with ExitStack() as opened:
            db = opened.enter_context(closing(prepare(data_dir, durability)))
            reader = opened.enter_context(closing(Reader(path, durability)))
            ringer = opened.enter_context(closing(Ringer(data_dir)))
            opened.pop_all()  # from here on they are the backend's to close
        writer = Writer(db, path, clock=clock, is_threaded=durability == "power")
        backend = cls(writer, reader, ringer)
        blobs = FileBlobs(data_dir / "blobs", survives_power_loss=durability == "power")
        backend.blobs = blobs
        backend._wire(data_dir, clock=clock, ids=ids, limits=limits)
        backend.retention = SqliteRetention(writer, reader, blobs, clock)
        writer.start()
        return backend

    async def claim_home(self, owner: str) -> int:
        return await self.leases.claim_home()

    async def close(self) -> None:
        self._writer.close()
        self.leases.close()
        self._reader.close()
        self._ringer.close()

    def _wire(self, folder: Path, *, clock: Clock, ids: Ids, limits: CommitLimits) -> None:
        writer, reader = self._writer, self._reader
        owned = OwnedPartitions()
        board = TaskBoard(owned.deliver)
        routes = Routes(reader)
        keys = Limits()
        limit_mail = LimitMail(owned, routes)
        self.leases = Leases(
            folder,
            clock=clock,
            ids=ids,
            writer=writer,
            reader=reader,
            owned=owned,
            board=board,
            routes=routes,
            keys=keys,
            limit_mail=limit_mail,
        )
        messages = Messages(owned, routes=routes, ringer=self._ringer, sweep=self.leases.sweep)
        feed = SqliteFeed(reader, clock)
        commits = Commits(
            writer,
            owned=owned,
            board=board,
            messages=messages,
            routes=routes,
            limits=keys,
            limit_mail=limit_mail,
            feed=feed,
        )
        self.store = SqliteStore(
            clock=clock,
            reader=reader,
            owned=owned,
            board=board,
            leases=self.leases,
            commits=commits,
            routes=routes,
            keys=keys,
            limits=limits,
        )
        self.mailbox = SqliteMailbox(writer, messages, self.blobs, feed)
        results = SqliteResults(writer, reader, clock)
        self.tasks = LocalTasks(board, clock, SqliteBuckets(writer, clock).take, results)
        self.archive = SqliteArchive(writer, reader)
        self.records = SqliteRecords(writer, reader)
        self.windows = LocalWindows(clock)
        self.feed = feed
