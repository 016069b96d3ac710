"""Into how many partitions a store is divided: decided once, when it is first opened."""

import zlib

import msgspec

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.ids import ExecutionId, root_of
from runnel.errors import InputError

SHARDS = 1
PARTITIONS_DEFAULT = 16


class Layout(msgspec.Struct, frozen=True):
    partitions: int

    def route(self, aggregate_id: str) -> int:
        """The same in every process and version: a tree of children lives with its root."""
        is_limit = aggregate_id.startswith(LIMIT_PREFIX)
        key = aggregate_id if is_limit else root_of(ExecutionId(aggregate_id))
        return zlib.crc32(key.encode()) % self.partitions


async def open_layout(lines: Lines, keys: Keys, partitions: int | None) -> Layout:
    """Raises InputError when the store is divided otherwise than `partitions` says."""
    wanted = PARTITIONS_DEFAULT if partitions is None else partitions
    shards, found = map(int, await lines.run("open", [keys.layout], [SHARDS, wanted]))
    if shards != SHARDS:
        raise InputError(f"the store has {shards} shards, this Runnel knows stores of {SHARDS}")
    if partitions not in (None, found):
        raise InputError(
            f"the store has {found} partitions, which can't be changed; expected {partitions}"
        )
    return Layout(found)
