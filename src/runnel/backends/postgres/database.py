"""A connection pool to a PostgreSQL server, its errors, and the metadata of the archive."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg
import msgspec

from runnel.backends.postgres.migrations import migrate, quote_identifier
from runnel.backends.sql_files import load_named_statements
from runnel.errors import ArchiveRefusedError, BrokenInvariantError, InputError, StoreError

SQL = load_named_statements(Path(__file__).with_name("queries.sql"))


# The timeout grows with the size of the data: a blob of 64 MB gets one minute more. With a fixed
# timeout, a connection of 8 Mbit/s could never archive such a blob.
UPLOAD_BYTES_PER_S_MIN = 1_000_000

_STAGING = Path(__file__).with_name("staging.sql").read_text(encoding="utf-8")
# asyncpg raises InternalClientError if a connection breaks in the middle of a transaction.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# SQLSTATE classes of errors for values that can't be stored. An error of any other class may be
# temporary.
_REFUSAL_CLASSES = ("22", "23", "54")

Row = Sequence[Any]
Connection = Any
"""A connection of asyncpg, which has no type annotations."""


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the archive. The URL is separate, because it can contain a password."""

    schema: str = "runnel"
    call_timeout_s: float = 10.0
    """A call or a connection attempt that takes longer fails."""
    connections_max: int = 10


DEFAULT_POSTGRES_OPTIONS = PostgresOptions()


class PostgresDatabase:
    """Runs named SQL statements in a pool of connections to PostgreSQL.

    Every failure raises StoreError, never an exception of asyncpg. If the server can't store the
    given values, the methods raise ArchiveRefusedError.
    """

    def __init__(self, pool: Any, schema: str, *, call_timeout_s: float) -> None:
        self.schema = schema
        self._pool = pool
        self._call_timeout_s = call_timeout_s
        self._lock = asyncio.Lock()
        self._is_prepared = False

    @classmethod
    async def open(cls, url: str, options: PostgresOptions = DEFAULT_POSTGRES_OPTIONS) -> Self:
        """Creates the pool without connecting; the first statement opens a connection."""
        pool = await asyncpg.create_pool(
            url,
            min_size=0,
            max_size=options.connections_max,
            command_timeout=options.call_timeout_s,
            timeout=options.call_timeout_s,
            init=_create_staging_tables,
            reset=_skip_reset,
            server_settings={
                "search_path": quote_identifier(options.schema),
                "application_name": "runnel",
            },
        )
        return cls(pool, options.schema, call_timeout_s=options.call_timeout_s)

    async def prepare(self) -> None:
        """Migrates the schema to the newest version at the first call.

        Every other method calls `prepare` first. Raises InputError for an invalid URL, and for a
        schema of a later Runnel version.
        """
        if self._is_prepared:
            return
        async with self._lock:
            with _TranslatedErrors():
                try:
                    async with self._pool.acquire() as connection:
                        await _migrate(connection, self.schema)
                except asyncpg.ClientConfigurationError as error:
                    message = f"expected the URL of a PostgreSQL server: {error}"
                    raise InputError(message) from error
            self._is_prepared = True

    async def rows(self, name: str, *values: object) -> Sequence[Row]:
        await self.prepare()
        with _TranslatedErrors():
            rows: Sequence[Row] = await self._pool.fetch(SQL[name], *values)
            return rows

    async def row(self, name: str, *values: object) -> Row | None:
        rows = await self.rows(name, *values)
        return rows[0] if rows else None

    async def run(self, name: str, *values: object, size_bytes: int = 0) -> int:
        """Runs the statement and returns the number of changed rows.

        The timeout grows with `size_bytes`.
        """
        await self.prepare()
        timeout = self._call_timeout_s + size_bytes / UPLOAD_BYTES_PER_S_MIN
        with _TranslatedErrors():
            return parse_row_count(await self._pool.execute(SQL[name], *values, timeout=timeout))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Runs the block in a transaction.

        If leaving the block fails, it is unknown whether the transaction was committed.
        """
        await self.prepare()
        with _TranslatedErrors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection

    async def close(self) -> None:
        """Closes all connections without waiting for the server, which may be unreachable."""
        self._pool.terminate()


async def _create_staging_tables(connection: Connection) -> None:
    await connection.execute(_STAGING)


async def _skip_reset(_connection: Connection) -> None:
    """Replaces the reset of a connection, which asyncpg runs after each call, by no operation.

    A reset is not needed: locks end with their transaction, and no session setting is changed. The
    reset of asyncpg costs a second round trip. With the reset, reading one execution took 0.5 ms of
    CPU time instead of 0.3 ms.
    """


async def _migrate(connection: Connection, schema: str) -> None:
    """Migrates the schema.

    On failure, closes the connection, because it may hold the session lock.
    """
    try:
        await migrate(connection, schema)
    except BaseException:
        connection.terminate()
        raise


def parse_row_count(status: str) -> int:
    """Returns the number of rows from a command status: 7 for `DELETE 7`."""
    return int(status.rpartition(" ")[2])


def is_refusal(error: BaseException) -> bool:
    """Returns True if the server would refuse the same values again; a duplicate key is not a
    refusal.
    """
    if isinstance(error, asyncpg.UniqueViolationError):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate)[:2] in _REFUSAL_CLASSES
    # The exception of asyncpg for a value that it can't convert to the type of a column.
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


class _TranslatedErrors:
    """A context manager that turns errors of asyncpg into StoreError."""

    def __enter__(self) -> None:
        """Does nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DRIVER_ERRORS):
            reason = str(error) or "no reply in time"
            kind = ArchiveRefusedError if is_refusal(error) else StoreError
            raise kind(f"PostgreSQL: {type(error).__name__}: {reason}") from error


# -- metadata: the number of partitions, and the Redis that is paired with the archive ----------

# The maximum number of stored addresses of one Redis. More addresses would be a sign of a
# misconfiguration.
REDIS_LOCATIONS_MAX = 100


class ArchiveMeta(msgspec.Struct, frozen=True):
    incarnation: str
    partitions: int


async def open_meta(
    database: PostgresDatabase, *, incarnation: str, partitions: int, is_fixed: bool = True
) -> ArchiveMeta:
    """Returns the stored metadata. In a new archive, first stores the given values.

    If `is_fixed`, raises InputError for an archive with another number of partitions.
    """
    await database.run("add_meta", incarnation, partitions)
    row = await database.row("get_meta")
    if row is None:
        raise BrokenInvariantError("the metadata of the archive is missing")
    meta = ArchiveMeta(row[0], row[1])
    if is_fixed and meta.partitions != partitions:
        raise InputError(
            f"the archive has {meta.partitions} partitions, which can't be changed; "
            f"expected {partitions}"
        )
    await database.run("add_cursors", meta.partitions)
    return meta


class PairedRedis(msgspec.Struct, frozen=True):
    """The Redis that is paired with the archive; `id` is None if no id was ever stored.

    `locations` are the addresses under which this Redis was used, the latest last.
    """

    id: str | None
    locations: Sequence[str]

    def is_other(self, identity: str | None, location: str) -> bool:
        """Returns True if the Redis with this identity and location is not the paired Redis.

        `identity` is None for a Redis that was wiped or is new. The location of such a Redis
        decides.
        """
        if self.id is None or self.id == identity:
            return False
        return identity is not None or location not in self.locations


NO_REDIS = PairedRedis(None, ())


async def read_paired_redis(database: PostgresDatabase) -> PairedRedis:
    row = await database.row("get_redis_side")
    return NO_REDIS if row is None else PairedRedis(row[0], row[1])


async def write_paired_redis(
    database: PostgresDatabase, redis: PairedRedis, *, replaced_id: str | None
) -> None:
    """Stores the paired Redis if the stored id is still `replaced_id`."""
    await database.run("put_redis_side", redis.id, list(redis.locations), replaced_id)


async def add_redis_location(database: PostgresDatabase, location: str) -> None:
    await database.run("add_place", location, REDIS_LOCATIONS_MAX)
