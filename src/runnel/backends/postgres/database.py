"""The connection pool of a PostgreSQL server, its errors, and the meta data of the archive."""

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


# A blob of 64 MB gets a minute more: on a line of 8 Mbit/s, it would never be archived otherwise.
UPLOAD_BYTES_PER_S_MIN = 1_000_000

_STAGING = Path(__file__).with_name("staging.sql").read_text(encoding="utf-8")
# The third comes of a connection that broke in the middle of a transaction.
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# Of the classes of SQLSTATE: what was sent can't be stored. Any other may be different later.
_REFUSAL_CLASSES = ("22", "23", "54")

Row = Sequence[Any]
Connection = Any
"""asyncpg has no types of its own."""


class PostgresOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The URL is apart, because it holds a password."""

    schema: str = "runnel"
    call_timeout_s: float = 10.0
    """A call that takes longer fails; so does a connection that can't be made in that time."""
    connections_max: int = 10


DEFAULT_POSTGRES_OPTIONS = PostgresOptions()


class PostgresDatabase:
    """Raises StoreError for whatever goes wrong on the way, and never asyncpg's own.

    ArchiveRefusedError when the server answers that it can't store what was sent.
    """

    def __init__(self, pool: Any, schema: str, *, call_timeout_s: float) -> None:
        self.schema = schema
        self._pool = pool
        self._call_timeout_s = call_timeout_s
        self._lock = asyncio.Lock()
        self._is_prepared = False

    @classmethod
    async def open(cls, url: str, options: PostgresOptions = DEFAULT_POSTGRES_OPTIONS) -> Self:
        """Connects with the first call."""
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
        """Brings the schema up to date, once; every other call does so by itself.

        Raises InputError for a URL that is none, and for a schema of a later version.
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
        """How many rows it changed; what is large may take longer than other calls."""
        await self.prepare()
        timeout = self._call_timeout_s + size_bytes / UPLOAD_BYTES_PER_S_MIN
        with _TranslatedErrors():
            return parse_row_count(await self._pool.execute(SQL[name], *values, timeout=timeout))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """All or nothing; whether it was committed is not known when leaving the block fails."""
        await self.prepare()
        with _TranslatedErrors():
            async with self._pool.acquire() as connection, connection.transaction():
                yield connection

    async def close(self) -> None:
        """Without waiting for a server that may be gone."""
        self._pool.terminate()


async def _create_staging_tables(connection: Connection) -> None:
    await connection.execute(_STAGING)


async def _skip_reset(_connection: Connection) -> None:
    """Nothing outlives a call here: locks are those of transactions, and no setting is changed.

    The driver would ask the server to forget such things after each call: a second round trip,
    for which a look at one execution took 0.5 ms of the caller's processor instead of 0.3.
    """


async def _migrate(connection: Connection, schema: str) -> None:
    """The one that holds a lock of its session: a connection that may still have it is closed."""
    try:
        await migrate(connection, schema)
    except BaseException:
        connection.terminate()
        raise


def parse_row_count(status: str) -> int:
    """`DELETE 7` is 7."""
    return int(status.rpartition(" ")[2])


def is_refusal(error: BaseException) -> bool:
    """Whether the same would be refused again; a row that is there already is another matter."""
    if isinstance(error, asyncpg.UniqueViolationError):
        return False
    if isinstance(error, asyncpg.PostgresError):
        return str(error.sqlstate)[:2] in _REFUSAL_CLASSES
    # The driver's own word for a value that it can't put into a column's form.
    return isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)


class _TranslatedErrors:
    """Errors of the driver leave as StoreError."""

    def __enter__(self) -> None:
        """Nothing to begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DRIVER_ERRORS):
            reason = str(error) or "no answer in time"
            kind = ArchiveRefusedError if is_refusal(error) else StoreError
            raise kind(f"PostgreSQL: {type(error).__name__}: {reason}") from error


# -- meta data: the number of partitions, and the Redis that belongs to the archive ------------

# Names of one server: a hundred is a mistake of somebody's.
REDIS_LOCATIONS_MAX = 100


class ArchiveMeta(msgspec.Struct, frozen=True):
    incarnation: str
    partitions: int


async def open_meta(
    database: PostgresDatabase, *, incarnation: str, partitions: int, is_fixed: bool = True
) -> ArchiveMeta:
    """As it is stored, or as given when there is none yet.

    Raises InputError when it `is_fixed` and the archive is divided otherwise.
    """
    await database.run("add_meta", incarnation, partitions)
    row = await database.row("get_meta")
    if row is None:
        raise BrokenInvariantError("the archive has lost its name")
    meta = ArchiveMeta(row[0], row[1])
    if is_fixed and meta.partitions != partitions:
        raise InputError(
            f"the archive has {meta.partitions} partitions, which can't be changed; "
            f"expected {partitions}"
        )
    await database.run("add_cursors", meta.partitions)
    return meta


class PairedRedis(msgspec.Struct, frozen=True):
    """The Redis that the archive belongs to; `id` is None when it has never had one.

    `locations` are those by which it was named, the latest last.
    """

    id: str | None
    locations: Sequence[str]

    def is_other(self, identity: str | None, location: str) -> bool:
        """Whether a Redis of this name (None: it was wiped, or is new) at this place is another."""
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
    """Does nothing when it is not `replaced_id` any more: somebody was faster."""
    await database.run("put_redis_side", redis.id, list(redis.locations), replaced_id)


async def add_redis_location(database: PostgresDatabase, location: str) -> None:
    await database.run("add_place", location, REDIS_LOCATIONS_MAX)
