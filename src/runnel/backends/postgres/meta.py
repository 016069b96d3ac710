"""Which pair of Redis and PostgreSQL this is, and how it is divided: decided once."""

import msgspec

from runnel.backends.postgres.database import Database
from runnel.errors import BrokenInvariantError, InputError


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
