"""Pairs an archive with its Redis, and imports commands from a Redis that had no archive.

A Redis that is not paired with the archive is refused, unless the process is started with the
option to take the archive.
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

# -- imports commands that Redis accepted before it had an archive ------------------------------

COMMAND_PAGE_SIZE = 100
WORKFLOW_PAGE_SIZE = 100
VERSIONS_MAX = 10_000


class PendingCommandImport:
    """Records commands that Redis acknowledged before it had an archive.

    The owners of partitions then send the recorded commands. The inbox of such a command may have a
    partition number that the archive does not have.
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
        """Records the messages of all inboxes, and assigns them to the partitions of `layout`.

        Returns the id of the last recorded message per inbox. If a message can't be read, records
        nothing and raises InputError.
        """
        count = int(await self._pool.call("HGET", self._keys.layout, "partitions") or 0)
        for partition in range(count):
            async for _ in self._read_pages(partition):
                """This loop only checks that every message can be read."""
        last_recorded: dict[int, str] = {}
        for partition in range(count):
            async for last, commands in self._read_pages(partition):
                await self._record(commands, layout)
                last_recorded[partition] = last
        if last_recorded:
            await self._copy_definitions()
        return last_recorded

    async def _read_pages(self, partition: int) -> AsyncIterator[tuple[str, Sequence[Command]]]:
        """Yields, for each page of an inbox, the id of its last message and its commands."""
        key = f"{self._keys.inbox}{partition}"
        async for page in self._pool.read_stream(key, page_size=COMMAND_PAGE_SIZE):
            yield page[-1][0].decode(), [_decode_or_refuse(fields[1]) for _, fields in page]

    async def _record(self, commands: Sequence[Command], layout: RedisLayout) -> None:
        """Records commands in the archive. Repeating this call after an interruption is safe."""
        for key in list_command_blobs(commands):
            with suppress(NotFoundError):  # the task that reads the blob reports it as missing
                await self._cold_blobs.put(key, await self._hot_blobs.get(key))
        await self._ledger.record(
            [(layout.route(command.aggregate_id), command) for command in commands]
        )

    async def _copy_definitions(self) -> None:
        """Copies the definitions from Redis to the archive, oldest first, so that each keeps its
        version.
        """
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
            f"this Redis holds a message that can't be archived: {error}; choose an empty Redis or "
            "another REDIS_PREFIX"
        ) from error


# The maximum number of rounds. Each round records the messages that arrived during the previous
# round.
ADOPT_ROUNDS_MAX = 10
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def format_redis_location(address: str, prefix: str, host: str) -> str:
    """Returns the location of a Redis as text for users.

    `host`, the name of this machine, is added to an address that only this machine can use.
    """
    is_local = address.startswith("/") or address.rpartition(":")[0] in LOOPBACK
    machine = f" on {host}" if is_local and host else ""
    return f"{address}{machine} with the prefix {prefix}"


class Pairing:
    """Checks that a Redis and an archive are a pair.

    `redis_location` is the location of the Redis as `format_redis_location` returns it. Redis and
    the archive both store the name of the Redis. A Redis without a name was wiped or is another
    Redis. A Redis without a name counts as the paired Redis if its location is stored in the
    archive.
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
        """Checks the pair and returns its layout.

        Raises InputError if the two are not a pair, or have another number of partitions. While
        PostgreSQL can't be reached, a Redis that is paired with an archive is accepted without the
        check.
        """
        try:
            meta = await self._open_meta(partitions)
        except StoreError:
            stored = await find_layout(self._pool, self._keys)
            if stored is None or partitions not in (None, stored.partitions):
                raise
            return stored
        layout = RedisLayout(meta.partitions, meta.incarnation)
        await self.confirm(layout, takes_archive=takes_archive)
        return layout

    async def confirm(self, layout: RedisLayout, *, takes_archive: bool = False) -> None:
        """Pairs an empty Redis with the archive.

        Raises InputError if the Redis is not empty and not paired with the archive.
        """
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
        """Stores the layout in Redis; first records the messages of a Redis that had no archive.

        The messages of a refused Redis are not recorded. That Redis may still run them, and the
        archive would run them a second time.
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
        raise StoreError(
            "Redis: another process submits to it without PostgreSQL: stop that process first"
        )

    async def _save_pairing(self, redis: PairedRedis, identity: str) -> None:
        """Stores the pairing in the archive.

        This is the last step, so that a refused Redis changes nothing in the archive.
        """
        if redis.id == identity:
            if self._redis_location not in redis.locations:
                await add_redis_location(self._database, self._redis_location)
            return
        await write_paired_redis(
            self._database, PairedRedis(identity, (self._redis_location,)), replaced_id=redis.id
        )
        paired = await read_paired_redis(self._database)
        if paired.id != identity:
            raise _build_refusal(paired, self._redis_location, self._database.schema)

    async def _open_meta(self, partitions: int | None) -> ArchiveMeta:
        return await open_meta(
            self._database,
            incarnation=self._ids.nonce() + self._ids.nonce(),
            partitions=partitions or PARTITIONS_DEFAULT,
            is_fixed=partitions is not None,
        )


def _build_refusal(redis: PairedRedis, location: str, schema: str) -> InputError:
    known_location = redis.locations[-1] if redis.locations else "another address"
    return InputError(
        f"the archive in the schema '{schema}' belongs to the Redis at {known_location}, "
        f"not to the one at {location}: use that Redis or another POSTGRES_SCHEMA; "
        "if it is lost for good, start 'runnel orchestrator --take-archive' once"
    )
