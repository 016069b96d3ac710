"""Deletes executions that ended long enough ago, on a server that has no archive."""

from collections.abc import Sequence

from runnel.backends.redis.archive import children_of
from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.keys import Keys, Layout, decode_header
from runnel.core.states import EXECUTION_FINAL, ExecutionState

PAGE = 200


class RedisRetention:
    """Where there is an archive, the archiver alone takes executions out of Redis."""

    def __init__(self, lines: Lines, keys: Keys, layout: Layout) -> None:
        self._lines = lines
        self._keys = keys
        self._layout = layout

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Those that were made first go first: there is no index of ends."""
        deleted, passed = 0, 0
        while deleted < limit and (page := await self._made_before(before, passed)):
            gone: set[bytes] = set()
            for root in await self._over(page, state, before):
                if deleted == limit:
                    break
                if tree := await self._delete(root):
                    gone.update(tree)
                    deleted += 1
            passed += len([each for each in page if each not in gone])
        return deleted

    async def delete_ownerless(self, *, idle_s: float) -> int:
        keys = [self._keys.blobs, self._keys.headers, self._keys.blob]
        first = b"-"
        deleted: int = 0
        while True:
            looked, last, gone = await self._lines.run(
                "delete_ownerless", keys, [first, PAGE, int(idle_s)]
            )
            deleted += gone
            if looked < PAGE:
                return deleted
            first = b"(" + last

    async def _made_before(self, before: float, passed: int) -> Sequence[bytes]:
        """A root comes before its children."""
        if self._layout.is_journaled:
            return ()
        found: list[bytes] = await self._lines.call(
            "ZRANGEBYSCORE", self._keys.listed, "-inf", f"({before!r}", "LIMIT", passed, PAGE
        )
        return found

    async def _over(
        self, page: Sequence[bytes], state: ExecutionState, before: float
    ) -> Sequence[bytes]:
        roots = [each for each in page if b"." not in each]
        if not roots:
            return ()
        found = await self._lines.call("HMGET", self._keys.headers, *roots)
        headers = [None if data is None else decode_header(data) for data in found]
        return [
            root
            for root, header in zip(roots, headers, strict=True)
            if header is not None
            and header.state is state
            and header.finished_at is not None
            and header.finished_at < before
        ]

    async def _delete(self, root: bytes) -> Sequence[bytes]:
        """The ids of its tree; none when something of it goes on, and nothing was deleted then.

        A child is found by its root, which is the last to go.
        """
        tree = [*reversed(await children_of(self._lines, self._keys, root)), root]
        headers: list[bytes] = []
        for first in range(0, len(tree), PAGE):
            ids = tree[first : first + PAGE]
            found = await self._lines.call("HMGET", self._keys.headers, *ids)
            if any(data is None or not _is_final(data) for data in found):
                return ()
            headers += found
        for first in range(0, len(tree), PAGE):
            ids = tree[first : first + PAGE]
            if not await self._delete_as_they_are(ids, headers[first : first + PAGE]):
                return ()
        return tree

    async def _delete_as_they_are(self, ids: Sequence[bytes], headers: Sequence[bytes]) -> bool:
        number = self._layout.route(ids[0].decode())
        keys = self._keys
        names = [
            f"{keys.partition}{number}",
            keys.headers,
            keys.listed,
            keys.ids,
            f"{keys.ended}{number}",
            f"{keys.ended_below}{number}",
            keys.blobs,
            f"{keys.running}{number}",
            keys.history,
            keys.blob,
        ]
        return bool(await self._lines.run("delete_ended", names, [*ids, *headers]))


def _is_final(data: bytes) -> bool:
    return decode_header(data).state in EXECUTION_FINAL
