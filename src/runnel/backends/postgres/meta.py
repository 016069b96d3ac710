"""Which pair of Redis and PostgreSQL this is, and how it is divided: decided once."""

from collections.abc import Sequence

import msgspec

from runnel.backends.postgres.database import Database
from runnel.errors import BrokenInvariantError, InputError

# Names of one server: a hundred is a mistake of somebody's.
PLACES_MAX = 100


class Meta(msgspec.Struct, frozen=True):
    incarnation: str
    partitions: int


async def open_meta(
    database: Database, *, incarnation: str, partitions: int, is_fixed: bool = True
) -> Meta:
    """As it is stored, or as given when there is none yet.

    Raises InputError when it `is_fixed` and the archive is divided otherwise.
    """
    await database.run("add_meta", incarnation, partitions)
    row = await database.row("get_meta")
    if row is None:
        raise BrokenInvariantError("the archive has lost its name")
    found = Meta(row[0], row[1])
    if is_fixed and found.partitions != partitions:
        raise InputError(
            f"the archive has {found.partitions} partitions, which can't be changed; "
            f"expected {partitions}"
        )
    await database.run("add_cursors", found.partitions)
    return found


class RedisSide(msgspec.Struct, frozen=True):
    """The Redis that the archive belongs to; `id` is None when it has never had one.

    `places` are those by which it was named, the latest last.
    """

    id: str | None
    places: Sequence[str]

    def is_other(self, found: str | None, place: str) -> bool:
        """Whether a Redis of this name (None: it was wiped, or is new) at this place is another."""
        if self.id is None or self.id == found:
            return False
        return found is not None or place not in self.places


NO_REDIS = RedisSide(None, ())


async def get_redis_side(database: Database) -> RedisSide:
    row = await database.row("get_redis_side")
    return NO_REDIS if row is None else RedisSide(row[0], row[1])


async def put_redis_side(database: Database, side: RedisSide, *, over: str | None) -> None:
    """Does nothing when it is not `over` any more: somebody was faster."""
    await database.run("put_redis_side", side.id, list(side.places), over)


async def add_place(database: Database, place: str) -> None:
    await database.run("add_place", place, PLACES_MAX)
