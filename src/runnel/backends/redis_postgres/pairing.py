"""Pairs an archive with its Redis, and imports the commands that wait in a Redis without one.

Another Redis that names the archive is refused, unless it is told to take it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.database import (
    ArchiveMeta,
    PairedRedis,
    PostgresDatabase,
    add_redis_location,
    open_meta,
    read_paired_redis,
    write_paired_redis,
)
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.postgres.records import PostgresBlobs
from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import (
    PARTITIONS_DEFAULT,
    RedisKeyNames,
    RedisLayout,
    adopt_layout,
    find_identity,
    find_layout,
)
from runnel.backends.redis.records import RedisBlobs
from runnel.core.codec import decode_message
from runnel.core.commands import Command, list_command_blobs
from runnel.errors import InputError, NotFoundError, StoreError, UnreadableFormatError
from runnel.ports.clock import IdGenerator

# -- commands that Redis accepted before it had an archive -------------------------------------

COMMAND_PAGE_SIZE = 100
WORKFLOW_PAGE_SIZE = 100
VERSIONS_MAX = 10_000


class PendingCommandImport:
    """It was acknowledged, so it becomes rows of the archive: the owners send it from there.

    The inbox that it waits in may be that of a partition which the archive does not have.
    """

    def __init__(
        self, pool: RedisConnectionPool, keys: RedisKeyNames, database: PostgresDatabase
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._hot, self._cold = RedisArchive(pool, keys), PostgresArchive(database)
        self._hot_blobs, self._cold_blobs = RedisBlobs(pool, keys), PostgresBlobs(database)
        self._ledger = PostgresLedger(database)

    async def record(self, layout: RedisLayout) -> Mapping[int, str]:
        """The last message of each inbox up to which all is recorded, for partitions of `layout`.

        Raises InputError for a message that can't be read; then none of them is recorded.
        """
        count = int(await self._pool.call("HGET", self._keys.layout, "partitions") or 0)
        for partition in range(count):
            async for _ in self._read_pages(partition):
                """All of them can be read."""
        read: dict[int, str] = {}
        for partition in range(count):
            async for last, commands in self._read_pages(partition):
                await self._record(commands, layout)
                read[partition] = last
        if read:
            await self._copy_definitions()
        return read

    async def _read_pages(self, partition: int) -> AsyncIterator[tuple[str, Sequence[Command]]]:
        """What an inbox holds, and where each page ends."""
        key, start = f"{self._keys.inbox}{partition}", "-"
        while page := await self._pool.call("XRANGE", key, start, "+", "COUNT", COMMAND_PAGE_SIZE):
            last = page[-1][0].decode()
            yield last, [_decode_or_refuse(fields[1]) for _, fields in page]
            start = f"({last}"

    async def _record(self, commands: Sequence[Command], layout: RedisLayout) -> None:
        """Twice, if this was interrupted: commands are safe to receive twice."""
        for key in list_command_blobs(commands):
            with suppress(NotFoundError):  # whoever reads it says so
                await self._cold_blobs.put(key, await self._hot_blobs.get(key))
        await self._ledger.record(
            [(layout.route(command.aggregate_id), command) for command in commands]
        )

    async def _copy_definitions(self) -> None:
        """The oldest first, so that each keeps its version."""
        after = ""
        while page := await self._hot.list_workflows(after=after, limit=WORKFLOW_PAGE_SIZE):
            for newest in page:
                versions = await self._hot.list_versions(newest.name, limit=VERSIONS_MAX)
                for definition in reversed(versions):
                    await self._cold.put_definition(
                        definition.name, definition.hash, definition.document
                    )
            after = page[-1].name


def _decode_or_refuse(body: bytes) -> Command:
    try:
        return decode_message(body)
    except UnreadableFormatError as error:
        raise InputError(
            f"this Redis holds a message that can't be archived: {error}; name an empty Redis, or "
            "another REDIS_PREFIX"
        ) from error


# How often what comes in meanwhile is recorded, too.
ADOPT_ROUNDS_MAX = 10
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def format_redis_location(address: str, prefix: str, host: str) -> str:
    """How a Redis is named here; `host` is this machine, for an address that only it can use."""
    is_local = address.startswith("/") or address.rpartition(":")[0] in LOOPBACK
    machine = f" on {host}" if is_local and host else ""
    return f"{address}{machine} with the prefix {prefix}"


class Pairing:
    """`redis_location` is where this process finds its Redis, as `format_redis_location` says it.

    Redis has a name of its own, and the archive knows it. A Redis without one was wiped, or is
    another one: it is the same if it is where the archive's was found before.
    """

    def __init__(
        self,
        pool: RedisConnectionPool,
        keys: RedisKeyNames,
        database: PostgresDatabase,
        *,
        redis_location: str,
        ids: IdGenerator,
    ) -> None:
        self._pool = pool
        self._keys = keys
        self._database = database
        self._redis_location = redis_location
        self._ids = ids
        self._pending_import = PendingCommandImport(pool, keys, database)

    async def open(self, partitions: int | None, *, takes_archive: bool) -> RedisLayout:
        """Raises InputError for two that do not belong together, or are divided otherwise.

        While PostgreSQL can't be reached, a Redis that has an archive is taken at its word.
        """
        try:
            meta = await self._open_meta(partitions)
        except StoreError:
            known = await find_layout(self._pool, self._keys)
            if known is None or partitions not in (None, known.partitions):
                raise
            return known
        layout = RedisLayout(meta.partitions, meta.incarnation)
        await self.confirm(layout, takes_archive=takes_archive)
        return layout

    async def confirm(self, layout: RedisLayout, *, takes_archive: bool = False) -> None:
        """That this Redis is the archive's, which an empty one becomes; raises InputError."""
        incarnation, current = await find_identity(self._pool, self._keys)
        paired_redis = await read_paired_redis(self._database)
        is_other = False
        if incarnation in {None, layout.incarnation}:
            is_other = paired_redis.is_other(current, self._redis_location)
            if is_other and not takes_archive:
                raise _build_refusal(paired_redis, self._redis_location, self._database.schema)
        new_identity = self._ids.nonce() + self._ids.nonce()
        if not is_other:
            new_identity = current or paired_redis.id or new_identity
        replaced = (current or "") if is_other else None
        identity = await self._adopt(layout, identity=new_identity, replaced_identity=replaced)
        await self._save_pairing(paired_redis, identity)

    async def _adopt(
        self, layout: RedisLayout, *, identity: str, replaced_identity: str | None
    ) -> str:
        """What waits in a Redis that had no archive so far is recorded before.

        Not of one that is refused: the archive would have it run a second time elsewhere.
        """
        recorded: Mapping[int, str] = {}
        for _ in range(ADOPT_ROUNDS_MAX):
            name = await adopt_layout(
                self._pool,
                self._keys,
                layout,
                identity=identity,
                replaced_identity=replaced_identity,
                recorded=recorded,
            )
            if name is not None:
                return name
            recorded = await self._pending_import.record(layout)
        raise StoreError("Redis: somebody submits to it without naming PostgreSQL: end that first")

    async def _save_pairing(self, redis: PairedRedis, identity: str) -> None:
        """In the archive, last: a Redis that can't be had leaves no trace there."""
        if redis.id == identity:
            if self._redis_location not in redis.locations:
                await add_redis_location(self._database, self._redis_location)
            return
        await write_paired_redis(
            self._database, PairedRedis(identity, (self._redis_location,)), replaced_id=redis.id
        )
        now = await read_paired_redis(self._database)
        if now.id != identity:
            raise _build_refusal(now, self._redis_location, self._database.schema)

    async def _open_meta(self, partitions: int | None) -> ArchiveMeta:
        return await open_meta(
            self._database,
            incarnation=self._ids.nonce() + self._ids.nonce(),
            partitions=partitions or PARTITIONS_DEFAULT,
            is_fixed=partitions is not None,
        )


def _build_refusal(redis: PairedRedis, location: str, schema: str) -> InputError:
    known = redis.locations[-1] if redis.locations else "another address"
    return InputError(
        f"the archive in the schema '{schema}' belongs to the Redis at {known}, and not to the one "
        f"at {location}: name that Redis, or another POSTGRES_SCHEMA; if it is gone for good, "
        f"start "
        "'runnel orchestrator --take-archive' once"
    )
