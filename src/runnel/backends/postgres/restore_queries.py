"""What the archive knows of a partition that its Redis may have lost."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import msgspec

from runnel.backends.postgres.database import Database
from runnel.backends.postgres.projection import escaped, header_of, unescaped
from runnel.backends.postgres.quarantine import decode_header, digest_of
from runnel.core.commands import LIMIT_PREFIX
from runnel.core.ids import ExecutionId, root_of
from runnel.ports.store import Header

PAGE = 50
KNOWN_AT_ONCE = 1_000


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
        aside = await self._set_aside(partition, after=after)
        return sorted({*(ExecutionId(row[0]) for row in rows), *aside})

    async def unfinished(
        self, partition: int, *, also: Collection[ExecutionId] = ()
    ) -> Sequence[ExecutionId]:
        """Whole trees in which something is not final, and those that were asked for.

        A child that ended is part of it: its parent may not have heard of that, and would make
        it again. So is all that was set aside: the lists do not say how it is.
        """
        rows = await self._database.rows("list_unfinished", partition)
        aside = await self._set_aside(partition)
        roots = sorted({root_of(id_) for id_ in (*(row[0] for row in rows), *also, *aside)})
        found = await self._database.rows("list_trees", roots)
        return sorted({*(ExecutionId(row[0]) for row in found), *aside})

    async def known(self, partition: int, roots: Sequence[ExecutionId]) -> set[ExecutionId]:
        """Those that the archive has, in whatever state."""
        found = {root_of(id_) for id_ in await self._set_aside(partition)}
        for first in range(0, len(roots), KNOWN_AT_ONCE):
            page = list(roots[first : first + KNOWN_AT_ONCE])
            found |= {ExecutionId(row[0]) for row in await self._database.rows("list_known", page)}
        return found

    async def executions(self, ids: Sequence[ExecutionId]) -> AsyncIterator[Archived]:
        """What was set aside comes behind what is in the tables."""
        for first in range(0, len(ids), PAGE):
            page = list(ids[first : first + PAGE])
            histories: dict[str, list[tuple[int, bytes]]] = {}
            for id_, sequence, entry in await self._database.rows("load_histories", page):
                histories.setdefault(id_, []).append((sequence, entry))
            rows = await self._database.rows("get_headers", page)
            headers: dict[str, Header] = {row[0]: header_of(row) for row in rows}
            known = {digest_of(id_): id_ for id_ in page}
            aside = await self._database.rows("list_set_aside", [*known])
            for digest, kind, sequence, body in aside:
                if kind == "header":
                    headers[known[digest]] = decode_header(body)
                elif kind == "history":
                    histories.setdefault(known[digest], []).append((sequence, body))
            for id_, header in headers.items():
                history = histories.get(id_, [])
                last = history[-1][0] if history else 0
                yield Archived(header, [entry for _, entry in history], last)

    async def _set_aside(self, partition: int, *, after: int = 0) -> set[ExecutionId]:
        rows = await self._database.rows("list_ids_set_aside", partition, after)
        ids = {ExecutionId(row[0].decode()) for row in rows}
        return {id_ for id_ in ids if not id_.startswith(LIMIT_PREFIX)}

    async def limits(self, partition: int) -> Mapping[str, Sequence[bytes]]:
        """The entries of each concurrency key that somebody holds or waits for, by its id."""
        found: dict[str, list[bytes]] = {}
        for key, entry in await self._database.rows("list_limits", partition):
            found.setdefault(unescaped(key), []).append(entry)
        for key, entry in await self._database.rows("list_limits_set_aside", partition):
            found.setdefault(key.decode(), []).append(entry)
        return found

    async def blobs_of(self, root: ExecutionId) -> Sequence[str]:
        """The keys of a whole tree."""
        name = escaped(root)
        rows = await self._database.rows("list_blobs", f"{name}.", f"{name}0")
        return [unescaped(row[0]) for row in rows]
