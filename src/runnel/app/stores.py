"""Opens the store that the settings name: Redis, Redis with PostgreSQL, or SQLite."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from runnel.app.process_signals import get_host_name
from runnel.backends.sqlite.database import FILE_NAME
from runnel.client.store_client import StoreClient
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import InputError, MissingExtraError, NoServerError, StoreError
from runnel.notify.event_bus import EventBus
from runnel.notify.feed_reader import FeedReader
from runnel.ports import Backend
from runnel.ports.clock import Clock, IdGenerator
from runnel.settings import SettingsError
from runnel.settings.model import Settings
from runnel.settings.variables import hide_password

if TYPE_CHECKING:
    from runnel.backends.postgres.database import PostgresOptions
    from runnel.backends.redis.backend import RedisBackend
    from runnel.backends.redis.options import RedisOptions
    from runnel.backends.redis_postgres.backend import RedisPostgresBackend
    from runnel.backends.sqlite.backend import SqliteBackend
    from runnel.client.operations import StoreOperations


# URLs of the servers, with passwords and without.

LOCALHOST = "localhost"
REDIS_UNNAMED = (
    "REDIS_URL: expected the URL of a Redis server (or REDIS_HOST and so on), got nothing; "
    "with RUNNEL_ENV=prod there is no default"
)


def build_redis_url(settings: Settings) -> str:
    """Returns the URL with the password; `REDIS_URL` wins over host and port.

    Raises SettingsError if no server is set and RUNNEL_ENV is prod; otherwise localhost is used.
    """
    if settings.redis_url is not None:
        return settings.redis_url
    host = settings.redis_host
    if host is None and settings.environment == "prod":
        raise SettingsError([REDIS_UNNAMED])
    credentials = _format_credentials(settings.redis_username, settings.redis_password)
    return f"redis://{credentials}{_format_host(host)}:{settings.redis_port}/{settings.redis_db}"


def build_redis_display_url(settings: Settings) -> str:
    return hide_password(build_redis_url(settings))


def build_postgres_url(settings: Settings) -> str:
    """Returns the URL with the password; `POSTGRES_URL` wins over host and port."""
    if settings.postgres_url is not None:
        return settings.postgres_url
    credentials = _format_credentials(settings.postgres_user, settings.postgres_password)
    place = f"{_format_host(settings.postgres_host)}:{settings.postgres_port}"
    return f"postgresql://{credentials}{place}/{quote(settings.postgres_db, safe='')}"


def build_postgres_display_url(settings: Settings) -> str:
    return hide_password(build_postgres_url(settings))


def list_connection_secrets(settings: Settings) -> list[str]:
    """Returns the passwords of the servers, as the settings have them and decoded."""
    urls = (settings.redis_url, settings.postgres_url)
    passwords = [settings.redis_password, settings.postgres_password]
    passwords += [urlsplit(url).password for url in urls if url is not None]
    secrets = [password for password in passwords if password]
    return [*secrets, *map(unquote, secrets)]


def _format_credentials(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    secret = "" if password is None else f":{quote(password, safe='')}"
    return f"{quote(user or '', safe='')}{secret}@"


def _format_host(host: str | None) -> str:
    """Encloses an IPv6 address in brackets."""
    name = host or LOCALHOST
    return f"[{name}]" if ":" in name else name


REDIS_REMEDY = (
    "start it, or correct --redis-url, REDIS_URL (or REDIS_HOST, REDIS_PORT, REDIS_PASSWORD)"
)
POSTGRES_REMEDY = "start it, or correct POSTGRES_URL (or POSTGRES_HOST, POSTGRES_PASSWORD, …)"
ARCHIVE_UNNAMED = (
    "expected the URL of the PostgreSQL that this Redis is archived in (or POSTGRES_HOST and the "
    "like), got nothing"
)


async def open_backend(settings: Settings, clock: Clock, ids: IdGenerator) -> Backend:
    """Opens the store for a client: SQLite, Redis, or Redis with its archive.

    A client can read a data directory on a full disk.
    """
    if not settings.has_redis:
        return await open_sqlite(settings, clock, ids, reads_full_disk=True)
    if settings.has_postgres:
        return await open_archived(settings, clock, ids)
    return await open_unarchived(settings, clock, ids)


async def open_unarchived(settings: Settings, clock: Clock, ids: IdGenerator) -> "RedisBackend":
    """Opens Redis without an archive; raises SettingsError for a Redis that has one."""
    backend = await open_redis(settings, clock, ids)
    if backend.layout.is_journaled:
        await backend.close()
        raise SettingsError([f"POSTGRES_URL: {ARCHIVE_UNNAMED}"])
    return backend


async def open_sqlite(
    settings: Settings,
    clock: Clock,
    ids: IdGenerator,
    *,
    reads_full_disk: bool = False,
    keeps_log: bool = False,
) -> "SqliteBackend":
    from runnel.backends.sqlite.backend import SqliteBackend

    return await SqliteBackend.open(
        Path(settings.data_dir),
        clock=clock,
        ids=ids,
        durability=settings.durability,
        reads_full_disk=reads_full_disk,
        keeps_log=keeps_log,
    )


async def open_redis(settings: Settings, clock: Clock, ids: IdGenerator) -> "RedisBackend":
    """Opens Redis for a worker, whether it has an archive or not.

    Raises NoServerError if Redis can't be used, MissingExtraError if its package is missing.
    """
    with _name_server_in_errors("Redis", build_redis_display_url(settings), REDIS_REMEDY):
        from runnel.backends.redis.backend import RedisBackend

        url, options = build_redis_url(settings), build_redis_options(settings)
        return await RedisBackend.open(url, options, clock=clock, ids=ids)


async def open_archived(
    settings: Settings, clock: Clock, ids: IdGenerator, *, takes_archive: bool = False
) -> "RedisPostgresBackend":
    """Opens Redis with its archive in PostgreSQL.

    Raises as `open_redis` does, and InputError if the archive belongs to another Redis.
    `takes_archive` binds the archive to this Redis instead.
    """
    # Redis is checked first, so that an error below comes from PostgreSQL.
    await _ping_redis(settings, clock, ids)
    with _name_server_in_errors(
        "PostgreSQL", build_postgres_display_url(settings), POSTGRES_REMEDY
    ):
        from runnel.backends.redis_postgres.backend import RedisPostgresBackend

        return await RedisPostgresBackend.open(
            build_redis_url(settings),
            build_postgres_url(settings),
            build_redis_options(settings),
            build_postgres_options(settings),
            clock=clock,
            ids=ids,
            host=get_host_name(),
            takes_archive=takes_archive,
        )


async def _ping_redis(settings: Settings, clock: Clock, ids: IdGenerator) -> None:
    with _name_server_in_errors("Redis", build_redis_display_url(settings), REDIS_REMEDY):
        from runnel.backends.redis.health import RedisHealth

        health = RedisHealth(build_redis_url(settings), build_redis_options(settings), clock, ids)
        try:
            await health.ping()
        finally:
            await health.close()


def build_redis_options(settings: Settings) -> "RedisOptions":
    from runnel.backends.redis.options import RedisOptions

    return RedisOptions(
        partitions=settings.partitions,
        prefix=settings.redis_prefix,
        call_timeout_s=settings.redis_timeout_s,
        calls_max=settings.redis_connections_max,
        block_s=settings.redis_block_s,
        letters_max=settings.letters_max,
        journal_entries_max=settings.journal_entries_max,
    )


def build_postgres_options(settings: Settings) -> "PostgresOptions":
    from runnel.backends.postgres.database import PostgresOptions

    return PostgresOptions(
        schema=settings.postgres_schema,
        call_timeout_s=settings.postgres_timeout_s,
        connections_max=settings.postgres_connections_max,
    )


def explain_store_error(settings: Settings, error: StoreError) -> StoreError:
    """Adds the address and the remedy to the error of a server that the settings name."""
    kind, _, reason = str(error).partition(": ")
    if type(error) is not StoreError or kind not in _EXTRAS:
        return error
    is_redis = kind == "Redis"
    address = (
        build_redis_display_url(settings) if is_redis else build_postgres_display_url(settings)
    )
    remedy = REDIS_REMEDY if is_redis else POSTGRES_REMEDY
    return NoServerError(kind, address, reason=reason, remedy=remedy)


@contextmanager
def _name_server_in_errors(kind: str, address: str, remedy: str) -> Iterator[None]:
    """Adds the server to errors while it is opened; a missing package names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or kind.lower()
        raise MissingExtraError(kind, _EXTRAS[kind], missing=missing) from error
    except StoreError as error:
        reason = str(error.__cause__ or error)
        raise NoServerError(kind, address, reason=reason, remedy=remedy) from error


_EXTRAS = {"Redis": "redis", "PostgreSQL": "postgres"}


# A client without an engine: it reads the store, and sends commands to the processes that run it.

STORE_ONLY = (
    "this command needs direct access to a store and can't use an HTTP server: give --data-dir or "
    "--redis-url, or unset RUNNEL_SERVER"
)


class NoDataError(InputError):
    """Raised for a data directory without data."""

    code = "no_data"

    def __init__(self, data_dir: Path) -> None:
        super().__init__(
            f"no executions: there is no data in '{data_dir}'; start one with 'runnel run FILE', "
            "or name another directory with --data-dir"
        )
        self.data_dir = data_dir


@dataclass(slots=True, frozen=True, kw_only=True)
class StoreSession:
    """An open store and a client on it. `has_workers` means that tasks run in worker processes."""

    client: StoreClient
    backend: Backend
    clock: Clock
    event_bus: EventBus
    feed_reader: FeedReader
    has_workers: bool


def has_data(settings: Settings) -> bool:
    """Returns whether the data directory contains a database; always True for Redis.

    Raises InputError if the directory can't be read, or if the settings name an HTTP server: see
    `runnel.client.http_client`.
    """
    if settings.has_server:
        raise InputError(STORE_ONLY)
    try:
        return settings.has_redis or (Path(settings.data_dir) / FILE_NAME).is_file()
    except OSError as error:
        raise InputError(
            f"the data directory {settings.data_dir} can't be read: {error.strerror}; name another "
            "one with --data-dir"
        ) from error


@asynccontextmanager
async def open_store_session(
    settings: Settings, *, creates_data_dir: bool = False
) -> AsyncIterator[StoreSession]:
    """Opens the store of the settings, and closes it after the block.

    Raises NoDataError for a data directory without data, unless `creates_data_dir` is set. Raises
    InputError as `has_data` does.
    """
    if not has_data(settings) and not creates_data_dir:
        raise NoDataError(Path(settings.data_dir))
    clock, ids = RealClock(), RandomIdGenerator()
    backend = await open_backend(settings, clock, ids)
    try:
        yield build_store_session(
            backend,
            clock,
            ids,
            has_workers=settings.has_redis,
            mocks_services=settings.mocks_services,
        )
    except StoreError as error:
        raise explain_store_error(settings, error) from error
    finally:
        await backend.close()


def build_store_session(
    backend: Backend,
    clock: Clock,
    ids: IdGenerator,
    *,
    has_workers: bool = False,
    mocks_services: bool = False,
) -> StoreSession:
    """Builds a session on an open backend, which the caller closes."""
    event_bus = EventBus()
    feed_reader = FeedReader(backend.feed, clock, event_bus)
    client = StoreClient(
        backend,
        clock,
        ids,
        get_completion=event_bus.get_completion,
        feed_reader=feed_reader,
        mocks_services=mocks_services,
    )
    return StoreSession(
        client=client,
        backend=backend,
        clock=clock,
        event_bus=event_bus,
        feed_reader=feed_reader,
        has_workers=has_workers,
    )


@asynccontextmanager
async def open_store_operations(
    settings: Settings,
) -> "AsyncIterator[tuple[StoreOperations, Clock]]":
    """Opens the operations of a Redis without its archive, which may be down."""
    from runnel.client.operations import StoreOperations

    clock = RealClock()
    backend = await open_redis(settings, clock, RandomIdGenerator())
    try:
        yield StoreOperations(backend, clock, settings), clock
    finally:
        await backend.close()
