"""Restores, from the archive, the partitions of a Redis that was wiped or rolled back."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from runnel.backends.feed_log import GAP_MARKER
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.postgres.restore_queries import ArchivedExecution, RestoreQueries
from runnel.backends.redis.commits import get_header_kind
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.journal import RedisJournal, decode_journal_entry
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout, decode_token, encode
from runnel.backends.redis.leases import RestartFence, parse_run_id, run_fenced_script
from runnel.backends.redis_postgres.archive_ownership import Pairing
from runnel.core.codec import decode_entry, decode_message, encode_message
from runnel.core.commands import LIMIT_PREFIX, CreateExecution, list_command_blobs
from runnel.core.events import (
    AnyEvent,
    CodeEnded,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
    RetryPlanned,
)
from runnel.core.ids import ExecutionId, TaskToken, get_root_id
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.errors import (
    FencedError,
    InputError,
    NotFoundError,
    PartitionUnavailableError,
    StoreError,
    UnreadableFormatError,
)
from runnel.ports.records import BlobStore
from runnel.ports.store import Lease

# -- executions that were deleted from the archive must not run again ---------------------------

DROP_BATCH_SIZE = 500


class DeletedExecutions:
    """Removes deleted executions from a partition whose archive is ahead of Redis.

    In such a Redis, every running execution was archived, and every creation in an inbox was
    recorded in the archive. A root execution that is missing from the archive was therefore final
    and was deleted.
    """

    def __init__(self, journal: RedisJournal, queries: RestoreQueries) -> None:
        self._journal = journal
        self._queries = queries

    async def drop(self, lease: Lease) -> set[ExecutionId]:
        """Removes the executions from Redis and returns their ids; their tasks must be dropped."""
        # Redis is read before the archive: a new execution is recorded in the archive before it is
        # sent to Redis.
        running = await self._journal.list_running(lease.partition)
        unread = await self._journal.read_unread(lease.partition)
        roots = {get_root_id(id_) for id_ in (*running, *find_created_ids(unread))}
        deleted = roots - await self._queries.list_known(lease.partition, sorted(roots))
        removed: set[ExecutionId] = set()
        for root in sorted(deleted):
            removed |= {ExecutionId(id_.decode()) for id_ in await self._journal.list_tree(root)}
        ids = sorted(removed)
        for first in range(0, len(ids), DROP_BATCH_SIZE):
            await self._journal.drop_executions(lease, ids[first : first + DROP_BATCH_SIZE])
        if deleted:
            await self._journal.drop_unread(lease, lambda body: _parse_root(body) in deleted)
        return removed


def find_created_ids(messages: Iterable[bytes]) -> set[ExecutionId]:
    ids: set[ExecutionId] = set()
    for message in messages:
        with suppress(UnreadableFormatError):
            command = decode_message(message)
            if isinstance(command, CreateExecution):
                ids.add(command.execution_id)
    return ids


def _parse_root(body: bytes) -> ExecutionId | None:
    """Returns the root of the execution that a message is for, or None if the message can't be
    read.
    """
    try:
        return get_root_id(ExecutionId(decode_message(body).aggregate_id))
    except UnreadableFormatError:
        return None


# -- reads from the events of an execution which tasks it waits for -----------------------------

_ATTEMPT_END_EVENTS = (
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    NodeCancelled,
    CodeEnded,
    RetryPlanned,
    NodeWaits,
)


def find_queued_tokens(execution_id: ExecutionId, entries: Iterable[bytes]) -> set[TaskToken]:
    """Returns the tokens of attempts that were issued and are neither settled nor replaced.

    Attempts whose code is being stopped are among them.
    """
    tokens: dict[tuple[str, int], TaskToken] = {}
    for event in _decode_events(entries):
        if isinstance(event, NodeQueued):
            token = TaskToken(execution_id, event.node, event.item, event.attempt, event.nonce)
            tokens[event.node, event.item] = token
        elif isinstance(event, NodeCancelled) and event.stop_due is not None:
            continue  # the code of the attempt is being stopped, and its end will be reported
        elif isinstance(event, _ATTEMPT_END_EVENTS):
            tokens.pop((event.node, event.item), None)
    return set(tokens.values())


def _decode_events(entries: Iterable[bytes]) -> Iterator[AnyEvent]:
    """Yields the events; skips damaged entries, because recovery reports the damaged execution."""
    for data in entries:
        with suppress(UnreadableFormatError):
            yield from decode_entry(data).events


# The maximum number of entries and of bytes that one script call writes.
PART_ENTRIES_MAX = 1_000
PART_BYTES_MAX = 1_000_000
JOURNAL_PAGE_SIZE = 500
SCAN_BATCH_SIZE = 1_000
# A page of commands is small, because one command can hold an input of 256 kB.
COMMAND_PAGE_SIZE = 100


class ArchiveRestorer:
    """Compares each partition with the archive once per run of the Redis server.

    Redis loses nothing while it runs, so partitions change owners without PostgreSQL. After a
    restart, a failover or a wipe, a partition can't be acquired until it was compared.
    """

    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        layout: RedisLayout,
        *,
        pairing: Pairing,
        ledger: PostgresLedger,
        queries: RestoreQueries,
        hot_blobs: BlobStore,
        cold_blobs: BlobStore,
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._layout = layout
        self._pairing = pairing
        self._ledger = ledger
        self._queries = queries
        self._hot_blobs = hot_blobs
        self._cold_blobs = cold_blobs
        self._journal = RedisJournal(pool, keys)
        self._deleted = DeletedExecutions(self._journal, queries)

    async def find_epoch_min(self, partition: int) -> int:
        """Returns the lowest epoch that the next owner may use.

        A rollback of Redis also rolls back its epochs, but the next epoch must be above all epochs
        in the archive.
        """
        if await self._is_verified(partition, await self._pool.run_id()):
            return 0
        try:
            await self._pairing.confirm(self._layout)
            return (await self._ledger.cursor(partition)).epoch + 1
        except InputError as error:
            raise PartitionUnavailableError(partition, str(error)) from error
        except StoreError as error:
            raise _build_unavailable_error(partition, error) from error

    async def restore(self, lease: Lease) -> Lease:
        if await self._is_verified(lease.partition, parse_run_id(lease)):
            return lease
        try:
            with RestartFence(lease):
                sequence = await self._compare_with_archive(lease)
        except FencedError:
            raise
        except StoreError as error:
            raise _build_unavailable_error(lease.partition, error) from error
        return msgspec.structs.replace(lease, sequence=sequence)

    async def _compare_with_archive(self, lease: Lease) -> int:
        """Restores the partition if necessary, and returns the sequence of its last valid commit.

        A Redis that was rolled back to a state before a wipe has commits that are not valid. The
        archive has other commits with the same sequence numbers.
        """
        number = lease.partition
        key = f"{self._keys.partition}{number}"
        verified_epoch = int(await self._pool.call("HGET", key, "life") or 0)
        claimed = await self._ledger.claim(number, lease.epoch, verified_epoch=verified_epoch)
        common_sequence = lease.sequence
        if claimed.branched_at is not None:
            common_sequence = min(common_sequence, claimed.branched_at)
        is_other = common_sequence < lease.sequence
        if is_other:
            # The whole journal is deleted, including commits that both incarnations share and that
            # are not archived yet.
            common_sequence = min(common_sequence, claimed.sequence)
        is_behind = claimed.sequence > common_sequence or is_other
        if is_behind:
            await self._write_back(lease, common_sequence)
        sequence = max(claimed.sequence, common_sequence)
        await self._resend_unapplied(lease)
        await self._ledger.start_incarnation(number, lease.epoch, sequence)
        await self._run_fenced(
            lease,
            "verify_partition",
            [f"{self._keys.journal}{number}", self._keys.feed],
            [sequence, parse_run_id(lease), int(is_other), GAP_MARKER if is_behind else ""],
        )
        return sequence

    async def _write_back(self, lease: Lease, common_sequence: int) -> None:
        """Restores executions, blobs and concurrency keys, and drops stale tasks.

        Writes complete histories and sets the sequence last, so that the restore can be repeated.
        Does not restore final executions into a wiped Redis. Restores final executions into a
        rolled-back Redis, because there they still run or their creation is in the inbox. All
        changes in Redis up to `common_sequence` are archived.
        """
        deleted = await self._deleted.drop(lease)
        diverged = await self._find_diverged(lease, common_sequence)
        if common_sequence:
            changed = await self._queries.list_changed(lease.partition, after=common_sequence)
        else:
            unread = await self._journal.read_unread(lease.partition)
            changed = await self._queries.list_unfinished(
                lease.partition, extra_ids=find_created_ids(unread)
            )
        ids = sorted({*changed, *diverged})
        restored: set[ExecutionId] = set()
        unfinished_roots: set[ExecutionId] = set()
        valid_tokens: set[TaskToken] = set()
        async for archived in self._queries.read_executions(ids):
            await self._restore_execution(lease, archived)
            restored.add(archived.header.execution_id)
            if archived.header.state not in FINAL_EXECUTION_STATES:
                unfinished_roots.add(get_root_id(archived.header.execution_id))
                valid_tokens |= find_queued_tokens(archived.header.execution_id, archived.entries)
        for root in sorted(unfinished_roots):
            await self._restore_blobs(root)
        await self._drop_executions(lease, sorted(diverged - restored))
        await self._restore_limits(lease)
        await self._drop_tasks(lease, {*ids, *deleted}, valid_tokens)

    async def _find_diverged(self, lease: Lease, common_sequence: int) -> set[ExecutionId]:
        """Returns the executions that commits of another incarnation changed.

        None of these commits was archived, so all of them are still in the journal.
        """
        key, start = f"{self._keys.journal}{lease.partition}", f"{common_sequence + 1}-0"
        diverged: set[ExecutionId] = set()
        if common_sequence == lease.sequence:
            return diverged
        async for page in self._pool.read_stream(key, page_size=JOURNAL_PAGE_SIZE, start=start):
            for entry in (decode_journal_entry(entry_id, fields) for entry_id, fields in page):
                ids = [history.aggregate_id for history in entry.histories]
                diverged |= {ExecutionId(id_) for id_ in ids if not id_.startswith(LIMIT_PREFIX)}
                diverged |= {header.execution_id for header in entry.headers}
        return diverged

    async def _drop_executions(self, lease: Lease, ids: Sequence[ExecutionId]) -> None:
        for first in range(0, len(ids), JOURNAL_PAGE_SIZE):
            await self._journal.drop_executions(lease, ids[first : first + JOURNAL_PAGE_SIZE])

    async def _drop_tasks(
        self, lease: Lease, ids: set[ExecutionId], valid_tokens: set[TaskToken]
    ) -> None:
        """Drops the tasks in Redis that are settled or replaced according to the restored
        histories.
        """
        stale: list[bytes] = []
        cursor = b"0"
        while True:
            cursor, fields = await self._pool.call(
                "HSCAN", self._keys.task_locations, cursor, "COUNT", SCAN_BATCH_SIZE
            )
            for encoded in fields[::2]:
                token = decode_token(encoded)
                if token.execution_id in ids and token not in valid_tokens:
                    stale.append(encoded)
            if cursor == b"0":
                break
        keys = [
            *(self._keys.task_locations, self._keys.tasks, self._keys.lanes),
            *(self._keys.arrivals, self._keys.held, self._keys.dropped),
        ]
        for first in range(0, len(stale), SCAN_BATCH_SIZE):
            await self._run_fenced(
                lease, "drop_tasks", keys, stale[first : first + SCAN_BATCH_SIZE]
            )

    async def _restore_execution(self, lease: Lease, archived: ArchivedExecution) -> None:
        header = archived.header
        header_args: list[Arg] = [
            encode(header),
            repr(header.created_at),
            get_header_kind(header),
            archived.sequence,
        ]
        await self._restore_history(lease, header.execution_id, archived.entries, header_args)

    async def _restore_limits(self, lease: Lease) -> None:
        keys = [f"{self._keys.limits}{lease.partition}", self._keys.history]
        await self._run_fenced(lease, "forget_concurrency_keys", keys, [LIMIT_PREFIX])
        for id_, entries in (await self._queries.read_limits(lease.partition)).items():
            await self._restore_history(lease, id_, entries, ["", "0", "", 0])

    async def _restore_history(
        self, lease: Lease, id_: str, entries: Sequence[bytes], header_args: Sequence[Arg]
    ) -> None:
        number, keys = lease.partition, self._keys
        names = [
            f"{keys.running}{number}",
            keys.headers,
            keys.ids_by_created_at,
            keys.ids,
            f"{keys.limits}{number}",
            f"{keys.ended}{number}",
            f"{keys.ended_children}{number}",
            keys.history + id_,
        ]
        name = id_.removeprefix(LIMIT_PREFIX) if header_args[0] == "" else id_
        is_first = 1
        for part in _split_parts(entries):
            await self._run_fenced(
                lease, "restore_aggregate", names, [name, is_first, *header_args, *part]
            )
            is_first = 0

    async def _restore_blobs(self, root: ExecutionId) -> None:
        for key in await self._queries.list_blob_keys(root):
            await self._hot_blobs.put(key, await self._cold_blobs.get(key))

    async def _resend_unapplied(self, lease: Lease) -> None:
        """Sends recorded commands again that have had no effect and are not in the inbox.

        The commands are sent at once, because only this process knows that Redis may have lost
        messages. The archiver reports unreadable commands.
        """
        unread: set[bytes] | None = None
        after = 0
        while page := await self._ledger.list_unapplied(
            lease.partition, idle_s=0, limit=COMMAND_PAGE_SIZE, after=after
        ):
            after = page[-1].id
            if unread is None:
                unread = await self._journal.read_unread(lease.partition)
            pending = [record.command for record in page if record.command is not None]
            commands = [command for command in pending if encode_message(command) not in unread]
            for key in list_command_blobs(commands):
                with suppress(NotFoundError):  # the reader of the value reports it as missing
                    await self._hot_blobs.put(key, await self._cold_blobs.get(key))
            await self._journal.resend(lease, commands)

    async def _is_verified(self, partition: int, run_id: str) -> bool:
        key = f"{self._keys.partition}{partition}"
        verified_run_id: bytes | None = await self._pool.call("HGET", key, "verified")
        return verified_run_id == run_id.encode()

    async def _run_fenced(
        self, lease: Lease, name: str, keys: Sequence[str], args: Sequence[Arg]
    ) -> None:
        await run_fenced_script(self._pool, self._keys, lease, name, keys=keys, args=args)


def _split_parts(entries: Sequence[bytes]) -> Sequence[Sequence[bytes]]:
    """Splits entries into parts.

    Returns at least one part, because an empty history also has a header.
    """
    parts: list[list[bytes]] = [[]]
    size = 0
    for entry in entries:
        if parts[-1] and (len(parts[-1]) == PART_ENTRIES_MAX or size + len(entry) > PART_BYTES_MAX):
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += len(entry)
    return parts


def _build_unavailable_error(partition: int, error: Exception) -> PartitionUnavailableError:
    return PartitionUnavailableError(
        partition,
        "Redis has restarted, and the archive can't be read to restore what it may have lost "
        f"({error})",
    )
