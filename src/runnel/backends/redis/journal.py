"""The journal of commits for the archive, and the removal of archived executions from Redis."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from runnel.backends.redis.archive import list_descendants
from runnel.backends.redis.commits import is_after
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames
from runnel.backends.redis.leases import (
    STREAM_START,
    RestartFence,
    parse_run_id,
    run_fenced_script,
)
from runnel.backends.row_codec import decode_header, decode_letter
from runnel.core.codec import encode_message
from runnel.core.commands import Command
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId
from runnel.errors import ArchiveGapError
from runnel.ports.journal import JournalEntry
from runnel.ports.store import ExecutionHeader, HistoryRecord, InboxPosition, Lease

ROOT_BATCH_SIZE = 200
FORGET_ROUNDS_MAX = 10
PAGE_SIZE = 500


class RedisJournal:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys

    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        key = f"{self._keys.journal}{lease.partition}"
        (stream,) = await run_fenced_script(
            self._pool,
            self._keys,
            lease,
            "read_journal",
            keys=[key],
            args=[f"{after + 1}-0", limit],
            is_large=True,
        )
        entries = [decode_journal_entry(entry_id, fields) for entry_id, fields in stream]
        for expected, entry in zip(count(after + 1), entries, strict=False):
            if entry.sequence != expected:
                raise ArchiveGapError(lease.partition, archived=expected - 1, first=entry.sequence)
        return entries

    async def trim(self, lease: Lease, *, upto: int) -> None:
        key = f"{self._keys.journal}{lease.partition}"
        with RestartFence(lease):
            await self._pool.call(
                "XTRIM", key, "MINID", "=", f"{upto + 1}-0", expected_run_id=parse_run_id(lease)
            )

    async def length(self, partition: int) -> int:
        length: int = await self._pool.call("XLEN", f"{self._keys.journal}{partition}")
        return length

    async def read_inbox_end(self, partition: int) -> InboxPosition:
        key = f"{self._keys.inbox}{partition}"
        if not await self._pool.call("EXISTS", key):
            return STREAM_START
        stream_info = await self._pool.call("XINFO", "STREAM", key)
        return InboxPosition(stream_info[stream_info.index(b"last-generated-id") + 1].decode())

    async def read_unread(self, partition: int) -> set[bytes]:
        """Returns the unconsumed messages in the inbox of the partition, encoded."""
        messages: set[bytes] = set()
        key = f"{self._keys.inbox}{partition}"
        async for page in self._pool.read_stream(key, page_size=PAGE_SIZE):
            messages |= {fields[1] for _, fields in page}
        return messages

    async def drop_unread(self, lease: Lease, is_dropped: Callable[[bytes], bool]) -> None:
        """Removes from the inbox the messages for which `is_dropped` returns True.

        The new owner of the partition calls this before it reads the inbox.
        """
        key = f"{self._keys.inbox}{lease.partition}"
        async for page in self._pool.read_stream(key, page_size=PAGE_SIZE):
            entry_ids = [entry_id for entry_id, fields in page if is_dropped(fields[1])]
            if entry_ids:
                await self._pool.call("XDEL", key, *entry_ids, expected_run_id=parse_run_id(lease))

    async def list_running(self, partition: int) -> Sequence[ExecutionId]:
        members = await self._pool.call("ZRANGE", f"{self._keys.running}{partition}", 0, -1)
        return [ExecutionId(member.decode()) for member in members]

    async def list_tree(self, root: ExecutionId) -> Sequence[bytes]:
        """Returns the ids of a root and of all its descendants."""
        return [root.encode(), *await list_descendants(self._pool, self._keys, root.encode())]

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        if commands:
            keys = [f"{self._keys.inbox}{lease.partition}"]
            await self._run_fenced(
                lease, "resend_messages", keys, [encode_message(command) for command in commands]
            )

    async def forget(self, lease: Lease, *, upto: int, inbox_position: InboxPosition) -> int | None:
        key = f"{self._keys.partition}{lease.partition}"
        cursor = await self._pool.call("HGET", key, "cursor")
        if is_after(inbox_position, InboxPosition((cursor or STREAM_START.encode()).decode())):
            return None
        forgotten, skipped = 0, 0
        for _ in range(FORGET_ROUNDS_MAX):
            examined, removed, kept, large_roots = await self._run_fenced(
                lease,
                "forget_archived",
                self._build_keys(lease),
                [upto, skipped, ROOT_BATCH_SIZE, PAGE_SIZE],
            )
            forgotten += removed
            skipped += kept
            for root in large_roots:
                removed = await self._forget_large_tree(lease, root, upto)
                forgotten += removed
                skipped += removed == 0
            if examined < ROOT_BATCH_SIZE:
                break
        return forgotten

    async def _forget_large_tree(self, lease: Lease, root: bytes, upto: int) -> int:
        """Removes a large tree, page by page, and returns the number of its executions.

        Removes nothing if a descendant still runs, or if a descendant ended after the commit
        `upto`. A later call then removes the tree.
        """
        descendants = await list_descendants(self._pool, self._keys, root)
        key = f"{self._keys.ended_children}{lease.partition}"
        for first in range(0, len(descendants), PAGE_SIZE):
            scores = await self._pool.call("ZMSCORE", key, *descendants[first : first + PAGE_SIZE])
            if any(score is None or float(score) > upto for score in scores):
                return 0
        # The root is removed last, because an interrupted removal looks up the descendants through
        # the root.
        ids = [*descendants, root]
        for first in range(0, len(ids), PAGE_SIZE):
            await self.drop_executions(lease, ids[first : first + PAGE_SIZE])
        return len(ids)

    async def drop_executions(self, lease: Lease, ids: Sequence[bytes | str]) -> None:
        """Removes the executions from Redis, in any state and with all their data."""
        await self._run_fenced(lease, "forget_executions", self._build_keys(lease), ids)

    def _build_keys(self, lease: Lease) -> Sequence[str]:
        return self._keys.list_execution_keys(lease.partition)[1:]

    async def _run_fenced(
        self, lease: Lease, name: str, keys: Sequence[str], args: Sequence[Any]
    ) -> Sequence[Any]:
        return await run_fenced_script(self._pool, self._keys, lease, name, keys=keys, args=args)


def decode_journal_entry(entry_id: bytes, fields: Sequence[bytes]) -> JournalEntry:
    histories: list[HistoryRecord] = []
    headers: list[ExecutionHeader] = []
    closed: list[str] = []
    letters: list[DeadLetter] = []
    for field, value in zip(fields[::2], fields[1::2], strict=True):
        match field[:1]:
            case b"h":
                histories.append(HistoryRecord(aggregate_id=field[1:].decode(), entry=value))
            case b"x":
                headers.append(decode_header(value))
            case b"c":
                closed.append(value.decode())
            case b"d":
                letters.append(decode_letter(value))
    return JournalEntry(
        sequence=int(entry_id.partition(b"-")[0]),
        histories=histories,
        headers=headers,
        closed=closed,
        dead_letters=letters,
    )
