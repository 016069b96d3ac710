"""Opens the store that the settings name: a Redis that is set, or else the data directory."""

from pathlib import Path
from typing import TYPE_CHECKING

from runnel.errors import MissingExtraError, NoServerError, StoreError
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock, Ids
from runnel.runtime.addresses import redis_address, redis_shown
from runnel.settings import Settings

if TYPE_CHECKING:
    from runnel.backends.redis import RedisBackend

REDIS_REMEDY = "start it, or correct REDIS_URL (or REDIS_HOST, REDIS_PORT, REDIS_PASSWORD)"


async def open_backend(settings: Settings, clock: Clock, ids: Ids) -> Backend:
    return await (open_redis if settings.has_redis else open_sqlite)(settings, clock, ids)


async def open_sqlite(settings: Settings, clock: Clock, ids: Ids) -> Backend:
    from runnel.backends.sqlite import SqliteBackend

    return await SqliteBackend.open(
        Path(settings.data_dir), clock=clock, ids=ids, durability=settings.durability
    )


async def open_redis(settings: Settings, clock: Clock, ids: Ids) -> "RedisBackend":
    """Raises NoServerError when it can't be used, MissingExtraError without its package."""
    try:
        from runnel.backends.redis import RedisBackend
    except ModuleNotFoundError as error:
        raise MissingExtraError("Redis", "redis", missing=error.name or "redis") from error
    try:
        return await RedisBackend.open(
            redis_address(settings),
            clock=clock,
            ids=ids,
            partitions=settings.partitions,
            call_s=settings.redis_timeout_s,
            calls_max=settings.redis_connections_max,
            block_s=settings.redis_block_s,
            letters_max=settings.letters_max,
        )
    except StoreError as error:
        reason = str(error.__cause__ or error)
        raise NoServerError(
            "Redis", redis_shown(settings), reason=reason, remedy=REDIS_REMEDY
        ) from error
