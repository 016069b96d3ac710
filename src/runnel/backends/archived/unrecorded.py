"""What callers asked of a Redis before it had an archive, and nobody has begun."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.postgres.blobs import PostgresBlobs
from runnel.backends.postgres.database import Database
from runnel.backends.postgres.ledger import PostgresLedger
from runnel.backends.redis.archive import RedisArchive
from runnel.backends.redis.blobs import RedisBlobs
from runnel.backends.redis.keys import Keys
from runnel.backends.redis.layout import Layout
from runnel.backends.redis.lines import Lines
from runnel.core.codec import decode_message
from runnel.core.commands import Command, blobs_of
from runnel.errors import InputError, NotFoundError, UnreadableFormatError

COMMANDS_AT_ONCE = 100
NAMES_AT_ONCE = 100
VERSIONS_MAX = 10_000


class Unrecorded:
    """It was acknowledged, so it becomes rows of the archive: the owners send it from there.

    The inbox that it waits in may be that of a partition which the archive does not have.
    """

    def __init__(self, lines: Lines, keys: Keys, database: Database) -> None:
        self._lines = lines
        self._keys = keys
        self._hot, self._cold = RedisArchive(lines, keys), PostgresArchive(database)
        self._hot_blobs, self._cold_blobs = RedisBlobs(lines, keys), PostgresBlobs(database)
        self._ledger = PostgresLedger(database)

    async def record(self, layout: Layout) -> Mapping[int, str]:
        """The last message of each inbox up to which all is recorded, for partitions of `layout`.

        Raises InputError for a message that can't be read; then none of them is recorded.
        """
        count = int(await self._lines.call("HGET", self._keys.layout, "partitions") or 0)
        for partition in range(count):
            async for _ in self._pages(partition):
                """All of them can be read."""
        read: dict[int, str] = {}
        for partition in range(count):
            async for last, commands in self._pages(partition):
                await self._record(commands, layout)
                read[partition] = last
        if read:
            await self._copy_definitions()
        return read

    async def _pages(self, partition: int) -> AsyncIterator[tuple[str, Sequence[Command]]]:
        """What an inbox holds, and where each page ends."""
        key, start = f"{self._keys.inbox}{partition}", "-"
        while page := await self._lines.call("XRANGE", key, start, "+", "COUNT", COMMANDS_AT_ONCE):
            last = page[-1][0].decode()
            yield last, [_readable(fields[1]) for _, fields in page]
            start = f"({last}"

    async def _record(self, commands: Sequence[Command], layout: Layout) -> None:
        """Twice, if this was interrupted: commands are safe to receive twice."""
        for key in blobs_of(commands):
            with suppress(NotFoundError):  # whoever reads it says so
                await self._cold_blobs.put(key, await self._hot_blobs.get(key))
        await self._ledger.record([(layout.route(each.aggregate_id), each) for each in commands])

    async def _copy_definitions(self) -> None:
        """The oldest first, so that each keeps its version."""
        after = ""
        while page := await self._hot.list_workflows(after=after, limit=NAMES_AT_ONCE):
            for newest in page:
                versions = await self._hot.list_versions(newest.name, limit=VERSIONS_MAX)
                for each in reversed(versions):
                    await self._cold.put_definition(each.name, each.hash, each.document)
            after = page[-1].name


def _readable(body: bytes) -> Command:
    try:
        return decode_message(body)
    except UnreadableFormatError as error:
        raise InputError(
            f"this Redis holds a message that can't be archived: {error}; name an empty Redis, or "
            "another REDIS_PREFIX"
        ) from error
