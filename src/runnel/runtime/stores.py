"""Opens the store that the settings name: servers that are set, or else the data directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import MissingExtraError, NoServerError, StoreError
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock, Ids
from runnel.runtime.addresses import (
    postgres_address,
    postgres_shown,
    redis_address,
    redis_shown,
)
from runnel.runtime.names import host_name
from runnel.settings import Settings, SettingsError

if TYPE_CHECKING:
    from runnel.backends.archived import ArchivedBackend
    from runnel.backends.redis import RedisBackend
    from runnel.backends.sqlite import SqliteBackend

REDIS_REMEDY = (
    "start it, or correct --redis-url, REDIS_URL (or REDIS_HOST, REDIS_PORT, REDIS_PASSWORD)"
)
POSTGRES_REMEDY = "start it, or correct POSTGRES_URL (or POSTGRES_HOST, POSTGRES_PASSWORD, …)"
ARCHIVE_UNNAMED = (
    "expected the URL of the PostgreSQL that this Redis is archived in (or POSTGRES_HOST and the "
    "like), got nothing"
)


async def open_backend(settings: Settings, clock: Clock, ids: Ids) -> Backend:
    """What a caller needs."""
    if not settings.has_redis:
        return await open_sqlite(settings, clock, ids)
    if settings.has_postgres:
        return await open_archived(settings, clock, ids)
    return await open_unarchived(settings, clock, ids)


async def open_unarchived(settings: Settings, clock: Clock, ids: Ids) -> "RedisBackend":
    """Redis alone; raises SettingsError for one that PostgreSQL belongs to."""
    backend = await open_redis(settings, clock, ids)
    if backend.layout.is_journaled:
        await backend.close()
        raise SettingsError([f"POSTGRES_URL: {ARCHIVE_UNNAMED}"])
    return backend


async def open_sqlite(settings: Settings, clock: Clock, ids: Ids) -> "SqliteBackend":
    from runnel.backends.sqlite import SqliteBackend

    return await SqliteBackend.open(
        Path(settings.data_dir), clock=clock, ids=ids, durability=settings.durability
    )


async def open_redis(settings: Settings, clock: Clock, ids: Ids) -> "RedisBackend":
    """All that a worker needs, with or without an archive.

    Raises NoServerError when it can't be used, MissingExtraError without its package.
    """
    with _named("Redis", redis_shown(settings), REDIS_REMEDY):
        from runnel.backends.redis import RedisBackend

        return await RedisBackend.open(
            redis_address(settings),
            clock=clock,
            ids=ids,
            partitions=settings.partitions,
            prefix=settings.redis_prefix,
            call_s=settings.redis_timeout_s,
            calls_max=settings.redis_connections_max,
            block_s=settings.redis_block_s,
            letters_max=settings.letters_max,
        )


async def open_archived(
    settings: Settings, clock: Clock, ids: Ids, *, takes_archive: bool = False
) -> "ArchivedBackend":
    """Redis with PostgreSQL; raises as `open_redis`, and InputError for two that do not match.

    With `takes_archive` the archive belongs to this Redis from now on, and to no other.
    """
    # First, because what goes wrong below is then PostgreSQL's.
    await _reach_redis(settings, clock, ids)
    with _named("PostgreSQL", postgres_shown(settings), POSTGRES_REMEDY):
        from runnel.backends.archived import ArchivedBackend

        return await ArchivedBackend.open(
            redis_address(settings),
            postgres_address(settings),
            clock=clock,
            ids=ids,
            partitions=settings.partitions,
            prefix=settings.redis_prefix,
            host=host_name(),
            takes_archive=takes_archive,
            schema=settings.postgres_schema,
            call_s=settings.redis_timeout_s,
            calls_max=settings.redis_connections_max,
            block_s=settings.redis_block_s,
            letters_max=settings.letters_max,
            journal_entries_max=settings.journal_entries_max,
            archive_call_s=settings.postgres_timeout_s,
            archive_connections_max=settings.postgres_connections_max,
        )


async def _reach_redis(settings: Settings, clock: Clock, ids: Ids) -> None:
    with _named("Redis", redis_shown(settings), REDIS_REMEDY):
        from runnel.backends.redis.health import Health

        health = Health(redis_address(settings), clock, ids, call_s=settings.redis_timeout_s)
        try:
            await health.ping()
        finally:
            await health.close()


def server_failure(settings: Settings, error: StoreError) -> StoreError:
    """With the address and what to do, when a server failed that the settings name."""
    kind, _, reason = str(error).partition(": ")
    if type(error) is not StoreError or kind not in _EXTRAS:
        return error
    is_redis = kind == "Redis"
    address = redis_shown(settings) if is_redis else postgres_shown(settings)
    remedy = REDIS_REMEDY if is_redis else POSTGRES_REMEDY
    return NoServerError(kind, address, reason=reason, remedy=remedy)


@contextmanager
def _named(kind: str, address: str, remedy: str) -> Iterator[None]:
    """Errors while a server is opened name it; a package that is missing names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        missing = error.name or kind.lower()
        raise MissingExtraError(kind, _EXTRAS[kind], missing=missing) from error
    except StoreError as error:
        reason = str(error.__cause__ or error)
        raise NoServerError(kind, address, reason=reason, remedy=remedy) from error


_EXTRAS = {"Redis": "redis", "PostgreSQL": "postgres"}
