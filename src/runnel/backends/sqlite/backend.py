"""A backend in one folder, with a SQLite database, blobs as files, and tasks in memory.

The database stores partitions, histories, executions, definitions, timers, messages, dead letters,
records and rate buckets.

The process that owns a partition keeps some data only in memory: queued and claimed tasks,
unconsumed reports, and concurrency keys with their messages. If that process dies, the next owner
detects that these tasks are unknown and issues them again. Keeping tasks in memory halves the
writes of every task. The price is a repeated attempt after a crash.

A memory-mapped file records which tasks are running. The file survives a crash of the process.
"""

from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

from runnel.backends.blob_files import FileBlobs
from runnel.backends.local.tasks import LocalRequestWindows, LocalTaskQueue, TokenTaker
from runnel.backends.sqlite.archive import SqliteArchive
from runnel.backends.sqlite.database import (
    FILE_NAME,
    DiskFullError,
    Durability,
    SqliteReader,
    open_for_writing,
    open_on_full_disk,
)
from runnel.backends.sqlite.feed import SqliteFeed
from runnel.backends.sqlite.inbox import MessageDelivery, SqliteMailbox
from runnel.backends.sqlite.leases import SqliteLeases
from runnel.backends.sqlite.partition import SqliteProcessState
from runnel.backends.sqlite.records import SqliteRecords, SqliteResultCache, SqliteTokenBuckets
from runnel.backends.sqlite.retention import SqliteRetention
from runnel.backends.sqlite.store import CommitWriter, SqliteStore
from runnel.backends.sqlite.wakeup_socket import WakeupSender
from runnel.backends.sqlite.writer import SqliteWriter
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, IdGenerator
from runnel.ports.feed import Feed
from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
from runnel.ports.store import CommitLimits, Mailbox, Store, Submission, TaskQueue

_LIMITS = CommitLimits(serializes_tasks=False)


class SqliteBackend:
    """Implements all ports in one data directory.

    Use `open` to create an instance for the running loop.
    """

    store: Store
    mailbox: Mailbox
    tasks: TaskQueue
    archive: Archive
    blobs: RandomAccessBlobStore
    records: Records
    windows: RequestWindows
    feed: Feed
    leases: SqliteLeases
    retention: SqliteRetention

    def __init__(
        self, writer: SqliteWriter, reader: SqliteReader, wakeup_sender: WakeupSender
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._wakeup_sender = wakeup_sender

    @classmethod
    async def open(
        cls,
        data_dir: Path,
        *,
        clock: Clock,
        ids: IdGenerator,
        durability: Durability = "process",
        limits: CommitLimits = _LIMITS,
        take_token: TokenTaker | None = None,
        reads_full_disk: bool = False,
        keeps_log: bool = False,
    ) -> Self:
        """Opens the data directory and creates the database if there is none.

        Without `take_token`, rate tokens come from buckets in the database. Raises InputError if
        the folder can't be used, and StoreError if the database can't be opened. With
        `reads_full_disk`, a database on a full disk is opened, and only writes fail. No other
        process can open it meanwhile, so this option is for short commands. With `keeps_log`, the
        process keeps a connection after `close`, so that the next call opens the database faster.
        """
        path = data_dir / FILE_NAME
        with ExitStack() as opened:
            try:
                db = opened.enter_context(closing(open_for_writing(data_dir, durability)))
                reader = opened.enter_context(
                    closing(SqliteReader(path, durability, keeps_log=keeps_log))
                )
            except DiskFullError:
                if not reads_full_disk or not path.exists():
                    raise
                opened.close()
                db = opened.enter_context(closing(open_on_full_disk(path)))
                reader = SqliteReader(path, durability, db)
            wakeup_sender = opened.enter_context(closing(WakeupSender(data_dir)))
            opened.pop_all()  # the backend closes them from here on
        writer = SqliteWriter(db, path, clock=clock, is_threaded=durability == "power")
        backend = cls(writer, reader, wakeup_sender)
        backend.blobs = FileBlobs(data_dir / "blobs", survives_power_loss=durability == "power")
        take_token = take_token or SqliteTokenBuckets(writer, clock).take
        backend._connect_parts(data_dir, clock=clock, ids=ids, limits=limits, take_token=take_token)
        backend.archive = SqliteArchive(writer, reader)
        backend.records = SqliteRecords(writer, reader)
        backend.windows = LocalRequestWindows(clock)
        backend.retention = SqliteRetention(
            data_dir, writer, reader, clock=clock, durability=durability
        )
        writer.start()
        return backend

    async def claim_home_partition(self, owner: str, *, submits: Submission | None = None) -> int:
        return await self.leases.claim_home_partition(submits)

    async def release_space(self) -> int | None:
        """Returns the free space of the file to the disk, in short steps; returns the bytes.

        Returns None if the file can't shrink: see `SqliteRetention.rewrite_file`.
        """
        return await self.retention.release_space(self.leases)

    async def close(self) -> None:
        self._writer.close()
        self.leases.close()
        self._reader.close()
        self._wakeup_sender.close()

    def _connect_parts(
        self,
        folder: Path,
        *,
        clock: Clock,
        ids: IdGenerator,
        limits: CommitLimits,
        take_token: TokenTaker,
    ) -> None:
        writer, reader = self._writer, self._reader
        state = SqliteProcessState(reader)
        self.leases = SqliteLeases(
            folder, state, clock=clock, ids=ids, writer=writer, reader=reader
        )
        messages = MessageDelivery(
            state,
            wakeup_sender=self._wakeup_sender,
            read_new_messages=self.leases.read_new_messages,
        )
        feed = SqliteFeed(reader, clock)
        self.store = SqliteStore(
            state,
            clock=clock,
            reader=reader,
            leases=self.leases,
            commits=CommitWriter(writer, state, messages, feed),
            limits=limits,
        )
        self.mailbox = SqliteMailbox(writer, messages, self.blobs, feed)
        results = SqliteResultCache(writer, reader, clock)
        self.tasks = LocalTaskQueue(state.board, clock, take_token, results)
        self.feed = feed
