"""Commits that wait for the archive, and executions that may be forgotten once they are there."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from runnel.backends.redis.archive import children_of
from runnel.backends.redis.commits import is_behind
from runnel.backends.redis.connection_pool import Lines, OtherRunError
from runnel.backends.redis.keys import Keys, decode_header, decode_letter
from runnel.backends.redis.leases import BEGINNING, fenced, fenced_by_restart, run_of
from runnel.core.codec import encode_message
from runnel.core.commands import Command
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId
from runnel.errors import ArchiveGapError
from runnel.ports.journal import JournalEntry
from runnel.ports.store import Header, History, Lease, Position

ROOTS_AT_ONCE = 200
LOOKS_MAX = 10
PAGE = 500


class RedisJournal:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def read(self, lease: Lease, *, after: int, limit: int) -> Sequence[JournalEntry]:
        key = f"{self._keys.journal}{lease.partition}"
        try:
            found = await self._lines.call(
                *("XRANGE", key, f"{after + 1}-0", "+", "COUNT", limit),
                under=run_of(lease),
                is_large=True,
            )
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error
        entries = [entry_of(place, fields) for place, fields in found]
        for expected, entry in zip(count(after + 1), entries, strict=False):
            if entry.sequence != expected:
                raise ArchiveGapError(lease.partition, archived=expected - 1, first=entry.sequence)
        return entries

    async def trim(self, lease: Lease, *, upto: int) -> None:
        key = f"{self._keys.journal}{lease.partition}"
        try:
            await self._lines.call("XTRIM", key, "MINID", "=", f"{upto + 1}-0", under=run_of(lease))
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error

    async def length(self, partition: int) -> int:
        found: int = await self._lines.call("XLEN", f"{self._keys.journal}{partition}")
        return found

    async def inbox_end(self, partition: int) -> Position:
        key = f"{self._keys.inbox}{partition}"
        if not await self._lines.call("EXISTS", key):
            return BEGINNING
        about = await self._lines.call("XINFO", "STREAM", key)
        return Position(about[about.index(b"last-generated-id") + 1].decode())

    async def unread(self, partition: int) -> set[bytes]:
        """The messages that lie in the inbox, as they were written."""
        found: set[bytes] = set()
        start = "-"
        key = f"{self._keys.inbox}{partition}"
        while page := await self._lines.call("XRANGE", key, start, "+", "COUNT", PAGE):
            found |= {fields[1] for _, fields in page}
            start = f"({page[-1][0].decode()}"
        return found

    async def drop_unread(self, lease: Lease, is_dropped: Callable[[bytes], bool]) -> None:
        """Removes messages from the inbox of a partition whose owner has not begun to read it."""
        start = "-"
        key = f"{self._keys.inbox}{lease.partition}"
        while page := await self._lines.call("XRANGE", key, start, "+", "COUNT", PAGE):
            places = [place for place, fields in page if is_dropped(fields[1])]
            if places:
                await self._lines.call("XDEL", key, *places, under=run_of(lease))
            start = f"({page[-1][0].decode()}"

    async def running(self, partition: int) -> Sequence[ExecutionId]:
        found = await self._lines.call("ZRANGE", f"{self._keys.running}{partition}", 0, -1)
        return [ExecutionId(each.decode()) for each in found]

    async def tree(self, root: ExecutionId) -> Sequence[bytes]:
        """The ids of a root and of all below it."""
        return [root.encode(), *await children_of(self._lines, self._keys, root.encode())]

    async def resend(self, lease: Lease, commands: Sequence[Command]) -> None:
        if commands:
            keys = [f"{self._keys.inbox}{lease.partition}"]
            await self._fenced(lease, "resend", keys, [encode_message(each) for each in commands])

    async def forget(self, lease: Lease, *, upto: int, read: Position) -> int | None:
        key = f"{self._keys.partition}{lease.partition}"
        cursor = await self._lines.call("HGET", key, "cursor")
        if is_behind(read, Position((cursor or BEGINNING.encode()).decode())):
            return None
        forgotten, passed = 0, 0
        for _ in range(LOOKS_MAX):
            looked, gone, left, large = await self._fenced(
                lease, "forget", self._names(lease), [upto, passed, ROOTS_AT_ONCE, PAGE]
            )
            forgotten += gone
            passed += left
            for root in large:
                gone = await self._forget_large(lease, root, upto)
                forgotten += gone
                passed += gone == 0
            if looked < ROOTS_AT_ONCE:
                break
        return forgotten

    async def _forget_large(self, lease: Lease, root: bytes, upto: int) -> int:
        """Not while one of its children goes on; one that ended later waits for the next look."""
        below = await children_of(self._lines, self._keys, root)
        key = f"{self._keys.ended_below}{lease.partition}"
        for first in range(0, len(below), PAGE):
            scores = await self._lines.call("ZMSCORE", key, *below[first : first + PAGE])
            if any(score is None or float(score) > upto for score in scores):
                return 0
        # The root last: it is what leads to the others.
        ids = [*below, root]
        for first in range(0, len(ids), PAGE):
            await self.drop_executions(lease, ids[first : first + PAGE])
        return len(ids)

    async def drop_executions(self, lease: Lease, ids: Sequence[bytes | str]) -> None:
        """Whatever they are: nothing of them stays."""
        await self._fenced(lease, "forget_ids", self._names(lease), ids)

    def _names(self, lease: Lease) -> Sequence[str]:
        keys, number = self._keys, lease.partition
        return [
            keys.headers,
            keys.listed,
            keys.ids,
            f"{keys.ended}{number}",
            f"{keys.ended_below}{number}",
            keys.blobs,
            f"{keys.running}{number}",
            keys.history,
            keys.blob,
        ]

    async def _fenced(
        self, lease: Lease, name: str, keys: Sequence[str], args: Sequence[Any]
    ) -> Sequence[Any]:
        partition = f"{self._keys.partition}{lease.partition}"
        found: list[Any]
        try:
            is_held, *found = await self._lines.run(
                name, [partition, *keys], [lease.epoch, lease.nonce, *args], under=run_of(lease)
            )
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error
        if not is_held:
            raise fenced(lease, epoch=int(found[0]))
        return found


def entry_of(place: bytes, fields: Sequence[bytes]) -> JournalEntry:
    histories: list[History] = []
    headers: list[Header] = []
    closed: list[str] = []
    letters: list[DeadLetter] = []
    for field, value in zip(fields[::2], fields[1::2], strict=True):
        match field[:1]:
            case b"h":
                histories.append(History(aggregate_id=field[1:].decode(), entry=value))
            case b"x":
                headers.append(decode_header(value))
            case b"c":
                closed.append(value.decode())
            case b"d":
                letters.append(decode_letter(value))
    return JournalEntry(
        sequence=int(place.partition(b"-")[0]),
        histories=histories,
        headers=headers,
        closed=closed,
        dead_letters=letters,
    )
