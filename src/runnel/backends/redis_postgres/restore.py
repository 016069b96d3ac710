"""A Redis that was wiped or set back gets what its archive has of each partition."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from runnel.backends.feed_log import BREAK
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.postgres.restore_queries import Archived, Lost
from runnel.backends.redis.commits import header_kind
from runnel.backends.redis.connection import Arg
from runnel.backends.redis.connection_pool import Lines, OtherRunError
from runnel.backends.redis.journal import RedisJournal, entry_of
from runnel.backends.redis.keys import Keys, Layout, decode_token, encode
from runnel.backends.redis.leases import fenced, fenced_by_restart, run_of
from runnel.backends.redis_postgres.pairing import Pairing
from runnel.core.codec import decode_entry, decode_message, encode_message
from runnel.core.commands import LIMIT_PREFIX, CreateExecution, blobs_of
from runnel.core.events import (
    AnyEvent,
    NodeCancelled,
    NodeCompleted,
    NodeFailed,
    NodeQueued,
    NodeSkipped,
    NodeWaits,
    RetryPlanned,
)
from runnel.core.ids import ExecutionId, Token, root_of
from runnel.core.states import EXECUTION_FINAL
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

# What the archive has deleted, and a Redis that was set back still has: it must not run again.

AT_ONCE = 500


class Deleted:
    """Of a partition that the archive is ahead of.

    All that runs in such a Redis was archived, and what waits in an inbox to be made was recorded
    before it was sent: so a root that the archive does not have any more was final, and deleted.
    """

    def __init__(self, journal: RedisJournal, lost: Lost) -> None:
        self._journal = journal
        self._lost = lost

    async def drop(self, lease: Lease) -> set[ExecutionId]:
        """The executions that were removed from Redis, and are to have no tasks."""
        # Redis first: what comes in between is recorded before it is there.
        running = await self._journal.running(lease.partition)
        unread = await self._journal.unread(lease.partition)
        roots = {root_of(id_) for id_ in (*running, *made_by(unread))}
        deleted = roots - await self._lost.known(lease.partition, sorted(roots))
        gone: set[ExecutionId] = set()
        for root in sorted(deleted):
            gone |= {ExecutionId(id_.decode()) for id_ in await self._journal.tree(root)}
        ids = sorted(gone)
        for first in range(0, len(ids), AT_ONCE):
            await self._journal.drop_executions(lease, ids[first : first + AT_ONCE])
        if deleted:
            await self._journal.drop_unread(lease, lambda body: _root_in(body) in deleted)
        return gone


def made_by(messages: Iterable[bytes]) -> set[ExecutionId]:
    found: set[ExecutionId] = set()
    for message in messages:
        with suppress(UnreadableFormatError):
            command = decode_message(message)
            if isinstance(command, CreateExecution):
                found.add(command.execution_id)
    return found


def _root_in(body: bytes) -> ExecutionId | None:
    """Of the execution that a message is for; None for one that can't be read."""
    try:
        return root_of(ExecutionId(decode_message(body).aggregate_id))
    except UnreadableFormatError:
        return None


# Which tasks an execution is waiting for, told by its events alone.

_ENDS = (NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled, RetryPlanned, NodeWaits)


def queued_tokens(execution_id: ExecutionId, entries: Iterable[bytes]) -> set[Token]:
    """Those that were issued and neither settled nor replaced: queued or running."""
    found: dict[tuple[str, int], Token] = {}
    for event in _readable_events(entries):
        if isinstance(event, NodeQueued):
            token = Token(execution_id, event.node, event.item, event.attempt, event.nonce)
            found[event.node, event.item] = token
        elif isinstance(event, _ENDS):
            found.pop((event.node, event.item), None)
    return set(found.values())


def _readable_events(entries: Iterable[bytes]) -> Iterator[AnyEvent]:
    """A damaged history is its execution's misfortune, which the recovery tells of."""
    for data in entries:
        with suppress(UnreadableFormatError):
            yield from decode_entry(data).events


# What one script writes at most.
PART_ENTRIES = 1_000
PART_BYTES = 1_000_000
RESENT_AT_ONCE = 500
SCANNED_AT_ONCE = 1_000
# Each may hold an input of a quarter of a megabyte.
COMMANDS_AT_ONCE = 100


class ArchiveRescue:
    """A partition is compared with the archive once in each life of the server.

    While Redis lives it loses nothing, so partitions change hands without PostgreSQL; after a
    restart, a failover or a wipe none can be had before it was compared.
    """

    def __init__(
        self,
        lines: Lines,
        keys: Keys,
        layout: Layout,
        *,
        pairing: Pairing,
        ledger: PostgresLedger,
        lost: Lost,
        hot_blobs: BlobStore,
        cold_blobs: BlobStore,
    ) -> None:
        self._lines = lines
        self._keys = keys
        self._layout = layout
        self._pairing = pairing
        self._ledger = ledger
        self._lost = lost
        self._hot_blobs = hot_blobs
        self._cold_blobs = cold_blobs
        self._journal = RedisJournal(lines, keys)
        self._deleted = Deleted(self._journal, lost)

    async def epoch_min(self, partition: int) -> int:
        """Epochs were set back with Redis: the next one has to be above the archive's."""
        if await self._is_verified(partition, await self._lines.run_id()):
            return 0
        try:
            await self._pairing.confirm(self._layout)
            return (await self._ledger.cursor(partition)).epoch + 1
        except InputError as error:
            raise PartitionUnavailableError(partition, str(error)) from error
        except StoreError as error:
            raise _unavailable(partition, error) from error

    async def restore(self, lease: Lease) -> Lease:
        if await self._is_verified(lease.partition, run_of(lease)):
            return lease
        try:
            sequence = await self._compare(lease)
        except OtherRunError as error:
            raise fenced_by_restart(lease) from error
        except FencedError:
            raise
        except StoreError as error:
            raise _unavailable(lease.partition, error) from error
        return msgspec.structs.replace(lease, sequence=sequence)

    async def _compare(self, lease: Lease) -> int:
        """The sequence behind which Redis goes on.

        A Redis that comes back from before a wipe has commits that never happened: since then the
        archive went on without them, under the same numbers.
        """
        number = lease.partition
        key = f"{self._keys.partition}{number}"
        life = int(await self._lines.call("HGET", key, "life") or 0)
        claimed = await self._ledger.claim(number, lease.epoch, life=life)
        common = lease.sequence
        if claimed.branched_at is not None:
            common = min(common, claimed.branched_at)
        is_other = common < lease.sequence
        if is_other:
            # Its journal goes as a whole: what both lives had, and was not archived, with it.
            common = min(common, claimed.sequence)
        is_behind = claimed.sequence > common or is_other
        if is_behind:
            await self._write_back(lease, common)
        sequence = max(claimed.sequence, common)
        await self._resend(lease)
        await self._ledger.begin_life(number, lease.epoch, sequence)
        await self._fenced(
            lease,
            "verify",
            [f"{self._keys.journal}{number}", self._keys.feed],
            [sequence, run_of(lease), int(is_other), BREAK if is_behind else ""],
        )
        return sequence

    async def _write_back(self, lease: Lease, common: int) -> None:
        """Whole histories, so that it can be done again; the sequence comes last.

        Of a Redis that was wiped, what is final stays in the archive. Of one that was set back, it
        has to be told: there it still runs, or waits in the inbox to be made. Up to `common`, all
        that Redis has is archived.
        """
        deleted = await self._deleted.drop(lease)
        never = await self._never_happened(lease, common)
        if common:
            touched = await self._lost.touched(lease.partition, after=common)
        else:
            unread = await self._journal.unread(lease.partition)
            touched = await self._lost.unfinished(lease.partition, also=made_by(unread))
        ids = sorted({*touched, *never})
        known: set[ExecutionId] = set()
        roots: set[ExecutionId] = set()
        current: set[Token] = set()
        async for archived in self._lost.executions(ids):
            await self._restore_execution(lease, archived)
            known.add(archived.header.execution_id)
            if archived.header.state not in EXECUTION_FINAL:
                roots.add(root_of(archived.header.execution_id))
                current |= queued_tokens(archived.header.execution_id, archived.entries)
        for root in sorted(roots):
            await self._restore_blobs(root)
        await self._drop_executions(lease, sorted(never - known))
        await self._restore_limits(lease)
        await self._drop_tasks(lease, {*ids, *deleted}, current)

    async def _never_happened(self, lease: Lease, common: int) -> set[ExecutionId]:
        """Executions that commits of another life changed: none of those was archived.

        So they all are in the journal that came back with them.
        """
        key, start = f"{self._keys.journal}{lease.partition}", f"{common + 1}-0"
        found: set[ExecutionId] = set()
        if common == lease.sequence:
            return found
        while page := await self._lines.call("XRANGE", key, start, "+", "COUNT", RESENT_AT_ONCE):
            for entry in (entry_of(place, fields) for place, fields in page):
                ids = [history.aggregate_id for history in entry.histories]
                found |= {ExecutionId(id_) for id_ in ids if not id_.startswith(LIMIT_PREFIX)}
                found |= {header.execution_id for header in entry.headers}
            start = f"({page[-1][0].decode()}"
        return found

    async def _drop_executions(self, lease: Lease, ids: Sequence[ExecutionId]) -> None:
        for first in range(0, len(ids), RESENT_AT_ONCE):
            await self._journal.drop_executions(lease, ids[first : first + RESENT_AT_ONCE])

    async def _drop_tasks(self, lease: Lease, ids: set[ExecutionId], current: set[Token]) -> None:
        """Tasks that were queued then, and are settled or replaced by what was written back."""
        stale: list[bytes] = []
        cursor = b"0"
        while True:
            cursor, found = await self._lines.call(
                "HSCAN", self._keys.out, cursor, "COUNT", SCANNED_AT_ONCE
            )
            for encoded in found[::2]:
                token = decode_token(encoded)
                if token.execution_id in ids and token not in current:
                    stale.append(encoded)
            if cursor == b"0":
                break
        keys = [self._keys.out, self._keys.tasks, self._keys.held, self._keys.dropped]
        for first in range(0, len(stale), SCANNED_AT_ONCE):
            await self._fenced(lease, "drop", keys, stale[first : first + SCANNED_AT_ONCE])

    async def _restore_execution(self, lease: Lease, archived: Archived) -> None:
        header = archived.header
        about: list[Arg] = [
            encode(header),
            repr(header.created_at),
            header_kind(header),
            archived.sequence,
        ]
        await self._restore_history(lease, header.execution_id, archived.entries, about)

    async def _restore_limits(self, lease: Lease) -> None:
        keys = [f"{self._keys.limits}{lease.partition}", self._keys.history]
        await self._fenced(lease, "forget_keys", keys, [LIMIT_PREFIX])
        for id_, entries in (await self._lost.limits(lease.partition)).items():
            await self._restore_history(lease, id_, entries, ["", "0", "", 0])

    async def _restore_history(
        self, lease: Lease, id_: str, entries: Sequence[bytes], about: Sequence[Arg]
    ) -> None:
        number, keys = lease.partition, self._keys
        names = [
            f"{keys.running}{number}",
            keys.headers,
            keys.listed,
            keys.ids,
            f"{keys.limits}{number}",
            f"{keys.ended}{number}",
            f"{keys.ended_below}{number}",
            keys.history + id_,
        ]
        name = id_.removeprefix(LIMIT_PREFIX) if about[0] == "" else id_
        is_first = 1
        for part in _parts(entries):
            await self._fenced(lease, "restore", names, [name, is_first, *about, *part])
            is_first = 0

    async def _restore_blobs(self, root: ExecutionId) -> None:
        for key in await self._lost.blobs_of(root):
            await self._hot_blobs.put(key, await self._cold_blobs.get(key))

    async def _resend(self, lease: Lease) -> None:
        """At once: what Redis has lost of its inbox, nobody else knows of.

        What can't be read is left to the archiver, who says so.
        """
        unread: set[bytes] | None = None
        after = 0
        while page := await self._ledger.unapplied(
            lease.partition, idle_s=0, limit=COMMANDS_AT_ONCE, after=after
        ):
            after = page[-1].id
            if unread is None:
                unread = await self._journal.unread(lease.partition)
            found = [asked.command for asked in page if asked.command is not None]
            commands = [each for each in found if encode_message(each) not in unread]
            for key in blobs_of(commands):
                with suppress(NotFoundError):  # whoever reads it says so
                    await self._hot_blobs.put(key, await self._cold_blobs.get(key))
            await self._journal.resend(lease, commands)

    async def _is_verified(self, partition: int, run_id: str) -> bool:
        key = f"{self._keys.partition}{partition}"
        found: bytes | None = await self._lines.call("HGET", key, "verified")
        return found == run_id.encode()

    async def _fenced(
        self, lease: Lease, name: str, keys: Sequence[str], args: Sequence[Arg]
    ) -> None:
        partition = f"{self._keys.partition}{lease.partition}"
        is_held, *found = await self._lines.run(
            name, [partition, *keys], [lease.epoch, lease.nonce, *args], under=run_of(lease)
        )
        if not is_held:
            raise fenced(lease, epoch=int(found[0]))


def _parts(entries: Sequence[bytes]) -> Sequence[Sequence[bytes]]:
    """One at least, so that an execution without a history gets its header."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for entry in entries:
        if parts[-1] and (len(parts[-1]) == PART_ENTRIES or size + len(entry) > PART_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += len(entry)
    return parts


def _unavailable(partition: int, error: Exception) -> PartitionUnavailableError:
    return PartitionUnavailableError(
        partition,
        "Redis has begun a new life, and what it may have lost can't be asked of the archive "
        f"({error})",
    )
