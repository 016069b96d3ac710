"""Deletes executions that ended before a given time, from a Redis without an archive."""

from collections.abc import Sequence

from runnel.backends.redis.archive import list_descendants
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames, RedisLayout
from runnel.backends.row_codec import decode_header
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState

PAGE_SIZE = 200


class RedisRetention:
    """Implements the Retention port for a Redis without an archive.

    With an archive, the archiver removes executions from Redis.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames, layout: RedisLayout) -> None:
        self._pool = pool
        self._keys = keys
        self._layout = layout

    async def delete_finished(self, state: ExecutionState, *, before: float, limit: int) -> int:
        """Deletes finished executions in the order of their creation, because no index by end time
        exists.
        """
        deleted, skipped = 0, 0
        while deleted < limit and (page := await self._list_created_before(before, skipped)):
            deleted_ids: set[bytes] = set()
            for root in await self._select_finished(page, state, before):
                if deleted == limit:
                    break
                if tree := await self._delete_tree(root):
                    deleted_ids.update(tree)
                    deleted += 1
            skipped += len(
                [execution_id for execution_id in page if execution_id not in deleted_ids]
            )
        return deleted

    async def delete_orphaned_blobs(self, *, idle_s: float) -> int:
        keys = [self._keys.blobs, self._keys.headers, self._keys.blob]
        first = b"-"
        deleted: int = 0
        while True:
            examined, last, removed = await self._pool.run_script(
                "delete_orphaned_blobs", keys, [first, PAGE_SIZE, int(idle_s)]
            )
            deleted += removed
            if examined < PAGE_SIZE:
                return deleted
            first = b"(" + last

    async def _list_created_before(self, before: float, skip: int) -> Sequence[bytes]:
        """Returns a page of executions that were created before `before`; a root comes before its
        children.
        """
        if self._layout.is_journaled:
            return ()
        ids: list[bytes] = await self._pool.call(
            "ZRANGEBYSCORE",
            self._keys.ids_by_created_at,
            "-inf",
            f"({before!r}",
            "LIMIT",
            skip,
            PAGE_SIZE,
        )
        return ids

    async def _select_finished(
        self, page: Sequence[bytes], state: ExecutionState, before: float
    ) -> Sequence[bytes]:
        roots = [execution_id for execution_id in page if b"." not in execution_id]
        if not roots:
            return ()
        stored = await self._pool.call("HMGET", self._keys.headers, *roots)
        headers = [None if data is None else decode_header(data) for data in stored]
        return [
            root
            for root, header in zip(roots, headers, strict=True)
            if header is not None
            and header.state is state
            and header.finished_at is not None
            and header.finished_at < before
        ]

    async def _delete_tree(self, root: bytes) -> Sequence[bytes]:
        """Deletes an execution with its descendants and returns their ids.

        Deletes nothing and returns an empty list if one of these executions is not final. Deletes
        the root last, because an interrupted deletion looks up the descendants through the root.
        """
        tree = [*reversed(await list_descendants(self._pool, self._keys, root)), root]
        headers: list[bytes] = []
        for first in range(0, len(tree), PAGE_SIZE):
            ids = tree[first : first + PAGE_SIZE]
            stored = await self._pool.call("HMGET", self._keys.headers, *ids)
            if any(data is None or not _is_final(data) for data in stored):
                return ()
            headers += stored
        for first in range(0, len(tree), PAGE_SIZE):
            ids = tree[first : first + PAGE_SIZE]
            if not await self._delete_if_unchanged(ids, headers[first : first + PAGE_SIZE]):
                return ()
        return tree

    async def _delete_if_unchanged(self, ids: Sequence[bytes], headers: Sequence[bytes]) -> bool:
        names = self._keys.list_execution_keys(self._layout.route(ids[0].decode()))
        return bool(await self._pool.run_script("delete_finished", names, [*ids, *headers]))


def _is_final(data: bytes) -> bool:
    return decode_header(data).state in FINAL_EXECUTION_STATES
