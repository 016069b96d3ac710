"""What the archive knows of a partition that its Redis may have lost."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from itertools import groupby

import msgspec

from runnel.backends.postgres.database import Database
from runnel.backends.postgres.rows import escaped, header_of, unescaped
from runnel.core.ids import ExecutionId, root_of
from runnel.ports.store import Header

PAGE = 50


class Archived(msgspec.Struct, frozen=True):
    """An execution with all its entries, and the last commit that changed it."""

    header: Header
    entries: Sequence[bytes]
    sequence: int


class Lost:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def touched(self, partition: int, *, after: int) -> Sequence[ExecutionId]:
        """Executions that a commit behind `after` changed."""
        rows = await self._database.rows("list_touched", partition, after)
        return sorted(ExecutionId(row[0]) for row in rows)

    async def unfinished(
        self, partition: int, *, also: Collection[ExecutionId] = ()
    ) -> Sequence[ExecutionId]:
        """Whole trees in which something is not final, and those that were asked for.

        A child that ended is part of it: its parent may not have heard of that, and would make
        it again.
        """
        rows = await self._database.rows("list_unfinished", partition)
        roots = sorted({root_of(id_) for id_ in (*(row[0] for row in rows), *also)})
        found = await self._database.rows("list_trees", roots)
        return sorted(ExecutionId(row[0]) for row in found)

    async def executions(self, ids: Sequence[ExecutionId]) -> AsyncIterator[Archived]:
        for first in range(0, len(ids), PAGE):
            page = list(ids[first : first + PAGE])
            rows = await self._database.rows("load_histories", page)
            histories = {id_: list(each) for id_, each in groupby(rows, key=lambda row: row[0])}
            for row in await self._database.rows("get_headers", page):
                history = histories.get(row[0], [])
                last = history[-1][1] if history else 0
                yield Archived(header_of(row), [each[2] for each in history], last)

    async def limits(self, partition: int) -> Mapping[str, Sequence[bytes]]:
        """The entries of each concurrency key that somebody holds or waits for, by its id."""
        found: dict[str, list[bytes]] = {}
        for key, entry in await self._database.rows("list_limits", partition):
            found.setdefault(unescaped(key), []).append(entry)
        return found

    async def blobs_of(self, root: ExecutionId) -> Sequence[str]:
        """The keys of a whole tree."""
        name = escaped(root)
        rows = await self._database.rows("list_blobs", f"{name}.", f"{name}0")
        return [unescaped(row[0]) for row in rows]
