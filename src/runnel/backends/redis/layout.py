"""Into how many partitions a store is divided: decided once, when it is first opened."""

import zlib
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.ids import ExecutionId, root_of
from runnel.errors import InputError

SHARDS = 1
# What adopt.lua answers.
MORE_HAS_COME = 2
NOTHING: Mapping[int, str] = MappingProxyType({})
PARTITIONS_DEFAULT = 16


class Layout(msgspec.Struct, frozen=True):
    partitions: int
    incarnation: str = ""
    """Names the archive that belongs to this store; empty for a store without one."""

    @property
    def is_journaled(self) -> bool:
        return self.incarnation != ""

    def route(self, aggregate_id: str) -> int:
        """The same in every process and version: a tree of children lives with its root."""
        is_limit = aggregate_id.startswith(LIMIT_PREFIX)
        key = aggregate_id if is_limit else root_of(ExecutionId(aggregate_id))
        return zlib.crc32(key.encode()) % self.partitions


async def open_layout(lines: Lines, keys: Keys, partitions: int | None) -> Layout:
    """Raises InputError when the store is divided otherwise than `partitions` says."""
    wanted = PARTITIONS_DEFAULT if partitions is None else partitions
    shards, found, incarnation = await lines.run("open", [keys.layout], [SHARDS, wanted])
    _check_shards(int(shards))
    if partitions not in (None, int(found)):
        raise InputError(
            f"the store has {int(found)} partitions, which can't be changed; expected {partitions}"
        )
    return Layout(int(found), (incarnation or b"").decode())


async def find_layout(lines: Lines, keys: Keys) -> Layout | None:
    """That of a store with an archive; None for any other."""
    partitions, incarnation = await lines.call("HMGET", keys.layout, "partitions", "incarnation")
    return None if incarnation is None else Layout(int(partitions), incarnation.decode())


async def find_identity(lines: Lines, keys: Keys) -> tuple[str | None, str | None]:
    """The archive that it belongs to, and the store's own name; None for what it does not have."""
    incarnation, identity = await lines.call("HMGET", keys.layout, "incarnation", "identity")
    return _text(incarnation), _text(identity)


async def adopt_layout(
    lines: Lines,
    keys: Keys,
    wanted: Layout,
    *,
    identity: str,
    over: str | None = None,
    recorded: Mapping[int, str] = NOTHING,
) -> str | None:
    """Gives an empty store the layout of its archive; raises InputError for any other than that.

    Empty is one that nobody has decided for, and whose inboxes hold nothing but what is `recorded`,
    by partition up to which message: it is removed. None, and nothing is done, if they hold more.

    Returns the name of the store: the one that it had, or `identity` if it had none. One that it
    had is replaced if it is `over` ('' is none).
    """
    found = await lines.run(
        "adopt",
        [keys.layout, keys.partition, keys.inbox],
        [
            *(SHARDS, wanted.partitions, wanted.incarnation, identity),
            *(over or "", int(over is not None)),
            *(part for number, last in recorded.items() for part in (number, last)),
        ],
    )
    if found == MORE_HAS_COME:
        return None
    if not found:
        raise InputError(
            "this Redis holds executions that were never archived, the archive belongs to another "
            "one: name an empty Redis, or another REDIS_PREFIX"
        )
    shards, partitions, incarnation, name = found
    _check_shards(int(shards))
    if incarnation.decode() != wanted.incarnation:
        raise InputError(
            f"this Redis belongs to the archive '{incarnation.decode()}', PostgreSQL is "
            f"'{wanted.incarnation}': name the two that belong together, or an empty Redis, which "
            "is then filled from the archive"
        )
    if int(partitions) != wanted.partitions:
        raise InputError(
            f"Redis has {int(partitions)} partitions, its archive {wanted.partitions}: "
            "one of them is a copy of another store"
        )
    return str(name.decode())


def _text(found: bytes | None) -> str | None:
    return None if found is None else found.decode()


def _check_shards(found: int) -> None:
    if found != SHARDS:
        raise InputError(f"the store has {found} shards, this Runnel knows stores of {SHARDS}")
