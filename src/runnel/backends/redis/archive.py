"""Definitions, executions and dead letters on the Redis server that also runs the executions."""

from collections.abc import AsyncIterator, Mapping, Sequence

from runnel.backends.list_filters import (
    build_letter_page,
    count_by_scan,
    matches_letter_filter,
    scan_headers,
)
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.keys import RedisKeyNames, encode
from runnel.backends.row_codec import decode_header, decode_letter
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.archive import (
    ALL_DEAD_LETTERS,
    ALL_EXECUTIONS,
    DeadLetterFilter,
    Definition,
    ExecutionCount,
    ExecutionFilter,
    HeaderPage,
    PagePosition,
)
from runnel.ports.store import ExecutionHeader

# -- dead letters: one stream with a maximum length per queue -----------------------------------

LETTER_PAGE_SIZE = 500


class RedisDeadLetters:
    """Reads and deletes dead letters.

    Each call scans all letters of a queue, because there is no index.
    """

    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys

    async def list(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> Sequence[DeadLetter]:
        """Returns one page of letters, newest first.

        The letters are sorted here, because a stream has the order of commits, not the order in
        which tasks were rejected.
        """
        letters: list[DeadLetter] = []
        for queue in await self._list_queues(criteria.queue):
            async for _, letter, _body in self._iterate_letters(queue):
                letters.append(letter)
        return build_letter_page(letters, criteria)

    async def count(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        count = 0
        for queue in await self._list_queues(criteria.queue):
            async for _, letter, _body in self._iterate_letters(queue):
                count += matches_letter_filter(letter, criteria)
        return count

    async def delete(self, letters: Sequence[DeadLetter]) -> int:
        deleted = 0
        for queue in sorted({letter.queue for letter in letters}):
            bodies = {encode(letter) for letter in letters if letter.queue == queue}
            key = queue.encode()
            ids = [
                entry_id async for entry_id, _, body in self._iterate_letters(key) if body in bodies
            ]
            for first in range(0, len(ids), LETTER_PAGE_SIZE):
                batch = ids[first : first + LETTER_PAGE_SIZE]
                deleted += await self._pool.call("XDEL", self._build_stream_key(key), *batch)
        return deleted

    async def _list_queues(self, only: str | None) -> Sequence[bytes]:
        if only is not None:
            return [only.encode()]
        return sorted(await self._pool.call("SMEMBERS", self._keys.letter_queues))

    async def _iterate_letters(
        self, queue: bytes
    ) -> AsyncIterator[tuple[bytes, DeadLetter, bytes]]:
        """Yields the id of each stream entry, the letter, and its encoded bytes."""
        last = b"+"
        while True:
            page = await self._pool.call(
                "XREVRANGE", self._build_stream_key(queue), last, "-", "COUNT", LETTER_PAGE_SIZE
            )
            for entry_id, fields in page:
                yield entry_id, decode_letter(fields[-1]), fields[-1]
            if len(page) < LETTER_PAGE_SIZE:
                return
            last = b"(" + page[-1][0]

    def _build_stream_key(self, queue: bytes) -> bytes:
        return self._keys.letters.encode() + queue


PAGE_SIZE = 200
# A prefix followed by this byte sorts after every text with the prefix, because the byte never
# occurs in UTF-8.
PREFIX_END = b"\xff"


class RedisArchive:
    def __init__(self, pool: RedisConnectionPool, keys: RedisKeyNames) -> None:
        self._pool = pool
        self._keys = keys
        letters = RedisDeadLetters(pool, keys)
        self.list_dead_letters = letters.list
        self.count_dead_letters = letters.count
        self.delete_dead_letters = letters.delete

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        keys = [
            self._keys.definition + hash_,
            self._keys.versions,
            self._keys.versions_of + name,
            self._keys.deleted_versions,
        ]
        version: int = await self._pool.run_script("put_definition", keys, [name, document, hash_])
        return version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        key = self._keys.definition + hash_
        name, version, document = await self._pool.call("HMGET", key, "name", "version", "document")
        if name is None:
            return None
        return Definition(hash=hash_, name=name.decode(), version=int(version), document=document)

    async def delete_versions(self, name: str) -> int:
        keys = [self._keys.versions, self._keys.deleted_versions]
        deleted: int = await self._pool.run_script("delete_versions", keys, [name])
        return deleted

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """Returns the newest version of each workflow, by name.

        Each call reads all workflow names; their number is small.
        """
        last = await self._read_versions(self._keys.versions)
        deleted = await self._read_versions(self._keys.deleted_versions)
        active = [name for name, version in last.items() if version > deleted.get(name, 0)]
        names = sorted(name for name in active if name > after)
        pages = [await self.list_versions(name, limit=1) for name in names[:limit]]
        return [definition for page in pages for definition in page]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """Returns the versions of the workflow, newest first.

        The list in Redis begins with the newest version and ends with the deleted versions.
        """
        key = self._keys.versions_of + name
        active_count = await self._pool.call("LLEN", key) - await self._read_deleted_version(name)
        if active_count < 1:
            return ()
        hashes = await self._pool.call("LRANGE", key, 0, min(limit, active_count) - 1)
        definitions = [
            await self.get_definition(DefinitionHash(hash_.decode())) for hash_ in hashes
        ]
        return [definition for definition in definitions if definition is not None]

    async def find_version(self, name: str, version: int) -> Definition | None:
        """Returns the version, or None if it does not exist or was deleted.

        Version 1 is the last entry of the list in Redis, which has the index -1.
        """
        if version <= await self._read_deleted_version(name):
            return None
        hash_ = await self._pool.call("LINDEX", self._keys.versions_of + name, -version)
        return None if hash_ is None else await self.get_definition(DefinitionHash(hash_.decode()))

    async def _read_deleted_version(self, name: str) -> int:
        """Returns the last deleted version of the workflow, or 0 if no version was deleted."""
        return int(await self._pool.call("HGET", self._keys.deleted_versions, name) or 0)

    async def _read_versions(self, key: str) -> dict[str, int]:
        pairs = await self._pool.call("HGETALL", key)
        return {
            name.decode(): int(number) for name, number in zip(pairs[::2], pairs[1::2], strict=True)
        }

    async def cache_definition(self, definition: Definition, *, ttl_s: int) -> None:
        """Stores a copy of a definition from the PostgreSQL archive for `ttl_s` seconds."""
        key = self._keys.definition + definition.hash
        version = str(definition.version)
        fields = ("name", definition.name, "version", version, "document", definition.document)
        await self._pool.call("HSET", key, *fields)
        await self._pool.call("EXPIRE", key, ttl_s)

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        data = await self._pool.call("HGET", self._keys.headers, execution_id)
        return None if data is None else decode_header(data)

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        if not ids:
            return {}
        headers = await self._pool.call("HMGET", self._keys.headers, *ids)
        return {
            execution_id: decode_header(data)
            for execution_id, data in zip(ids, headers, strict=True)
            if data is not None
        }

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        entries: list[bytes] = await self._pool.call(
            "LRANGE", self._keys.history + execution_id, after, -1, is_large=True
        )
        return entries

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        """Returns one page of headers, newest first.

        Scans all executions from the newest on, because the only index is by creation time.
        """
        return await scan_headers(self._read_headers, criteria, chunk_size=PAGE_SIZE)

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        return await count_by_scan(self._read_headers, criteria, chunk_size=PAGE_SIZE)

    async def _read_headers(self, after: PagePosition, count: int) -> Sequence[ExecutionHeader]:
        keys = [self._keys.ids_by_created_at, self._keys.headers]
        created_at, id_ = after
        headers = await self._pool.run_script("list_headers", keys, [repr(created_at), id_, count])
        return [decode_header(data) for data in headers]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + PREFIX_END
        ids: list[ExecutionId] = []
        while len(ids) < limit:
            page = await self._pool.call(
                "ZRANGEBYLEX", self._keys.ids, first, last, "LIMIT", 0, PAGE_SIZE
            )
            names = [ExecutionId(member.decode()) for member in page]
            ids += [name for name in names if "." in prefix or "." not in name]
            if len(page) < PAGE_SIZE:
                break
            first = b"(" + page[-1]
        return ids[:limit]


# -- descendants of a root execution, looked up by the prefix of their ids ----------------------

TREE_PAGE_SIZE = 500


async def list_descendants(
    pool: RedisConnectionPool, keys: RedisKeyNames, root: bytes
) -> list[bytes]:
    """Returns the ids of all descendants in order; a parent comes before its children."""
    descendants: list[bytes] = []
    first = b"[" + root + b"."
    while True:
        page = await pool.call(
            "ZRANGEBYLEX", keys.ids, first, b"(" + root + b"/", "LIMIT", 0, TREE_PAGE_SIZE
        )
        descendants += page
        if len(page) < TREE_PAGE_SIZE:
            return descendants
        first = b"(" + page[-1]
