"""Definitions, executions to list and read, and dead letters, on the server that also runs them."""

from collections.abc import AsyncIterator, Mapping, Sequence

from runnel.backends.matching import count_through, is_wanted_letter, look_through, page_of_letters
from runnel.backends.redis.connection_pool import Lines
from runnel.backends.redis.keys import Keys, decode_header, decode_letter, encode
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.archive import (
    ALL_EXECUTIONS,
    ALL_LETTERS,
    Definition,
    ExecutionFilter,
    HeaderPage,
    LetterFilter,
    Place,
    StateCount,
)
from runnel.ports.store import Header

# Dead letters, a stream for each queue, of which each keeps so many at most.

LETTERS_PAGE = 500


class RedisLetters:
    """Looks at every letter of the queues that are asked for: there is no index of them."""

    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def list(self, wanted: LetterFilter) -> Sequence[DeadLetter]:
        """Streams are in the order of commits, which is not quite that of rejection."""
        found: list[DeadLetter] = []
        for queue in await self._queues(wanted.queue):
            async for _, letter, _body in self._all(queue):
                found.append(letter)
        return page_of_letters(found, wanted)

    async def count(self, wanted: LetterFilter) -> int:
        found = 0
        for queue in await self._queues(wanted.queue):
            async for _, letter, _body in self._all(queue):
                found += is_wanted_letter(letter, wanted)
        return found

    async def delete(self, letters: Sequence[DeadLetter]) -> int:
        deleted = 0
        for queue in sorted({letter.queue for letter in letters}):
            bodies = {encode(letter) for letter in letters if letter.queue == queue}
            key = queue.encode()
            ids = [entry_id async for entry_id, _, body in self._all(key) if body in bodies]
            for first in range(0, len(ids), LETTERS_PAGE):
                some = ids[first : first + LETTERS_PAGE]
                deleted += await self._lines.call("XDEL", self._stream(key), *some)
        return deleted

    async def _queues(self, only: str | None) -> Sequence[bytes]:
        if only is not None:
            return [only.encode()]
        return sorted(await self._lines.call("SMEMBERS", self._keys.letter_queues))

    async def _all(self, queue: bytes) -> AsyncIterator[tuple[bytes, DeadLetter, bytes]]:
        """The entry's id, the letter, and its bytes."""
        last = b"+"
        while True:
            page = await self._lines.call(
                "XREVRANGE", self._stream(queue), last, "-", "COUNT", LETTERS_PAGE
            )
            for entry_id, fields in page:
                yield entry_id, decode_letter(fields[-1]), fields[-1]
            if len(page) < LETTERS_PAGE:
                return
            last = b"(" + page[-1][0]

    def _stream(self, queue: bytes) -> bytes:
        return self._keys.letters.encode() + queue


PAGE = 200
# Behind every text that begins with a prefix: no UTF-8 has this byte.
LAST = b"\xff"


class RedisArchive:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys
        self._letters = RedisLetters(lines, keys)

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        keys = [
            self._keys.definition + hash_,
            self._keys.versions,
            self._keys.versions_of + name,
            self._keys.deleted_versions,
        ]
        version: int = await self._lines.run("put_definition", keys, [name, document, hash_])
        return version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        key = self._keys.definition + hash_
        name, version, document = await self._lines.call(
            "HMGET", key, "name", "version", "document"
        )
        if name is None:
            return None
        return Definition(hash=hash_, name=name.decode(), version=int(version), document=document)

    async def delete_versions(self, name: str) -> int:
        keys = [self._keys.versions, self._keys.deleted_versions]
        deleted: int = await self._lines.run("delete_versions", keys, [name])
        return deleted

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """All names are read each time: there are as many as people have thought of."""
        last = await self._numbers(self._keys.versions)
        deleted = await self._numbers(self._keys.deleted_versions)
        living = [name for name, version in last.items() if version > deleted.get(name, 0)]
        names = sorted(name for name in living if name > after)
        pages = [await self.list_versions(name, limit=1) for name in names[:limit]]
        return [found for page in pages for found in page]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """The list has the newest first, and the deleted ones at its end."""
        key = self._keys.versions_of + name
        living = await self._lines.call("LLEN", key) - await self._deleted(name)
        if living < 1:
            return ()
        hashes = await self._lines.call("LRANGE", key, 0, min(limit, living) - 1)
        found = [await self.get_definition(DefinitionHash(each.decode())) for each in hashes]
        return [definition for definition in found if definition is not None]

    async def find_version(self, name: str, version: int) -> Definition | None:
        """Version 1 is the last of the list, which Redis calls -1."""
        if version <= await self._deleted(name):
            return None
        hash_ = await self._lines.call("LINDEX", self._keys.versions_of + name, -version)
        return None if hash_ is None else await self.get_definition(DefinitionHash(hash_.decode()))

    async def _deleted(self, name: str) -> int:
        """Its last version that was deleted; 0 when none was."""
        return int(await self._lines.call("HGET", self._keys.deleted_versions, name) or 0)

    async def _numbers(self, key: str) -> dict[str, int]:
        found = await self._lines.call("HGETALL", key)
        return {
            name.decode(): int(number) for name, number in zip(found[::2], found[1::2], strict=True)
        }

    async def keep_definition(self, definition: Definition, *, keep_s: int) -> None:
        """As another archive has it, for so long at least."""
        key = self._keys.definition + definition.hash
        version = str(definition.version)
        fields = ("name", definition.name, "version", version, "document", definition.document)
        await self._lines.call("HSET", key, *fields)
        await self._lines.call("EXPIRE", key, keep_s)

    async def get_header(self, execution_id: ExecutionId) -> Header | None:
        found = await self._lines.call("HGET", self._keys.headers, execution_id)
        return None if found is None else decode_header(found)

    async def get_headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        if not ids:
            return {}
        found = await self._lines.call("HMGET", self._keys.headers, *ids)
        return {
            execution_id: decode_header(data)
            for execution_id, data in zip(ids, found, strict=True)
            if data is not None
        }

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        entries: list[bytes] = await self._lines.call(
            "LRANGE", self._keys.history + execution_id, after, -1, is_large=True
        )
        return entries

    async def list_headers(self, wanted: ExecutionFilter) -> HeaderPage:
        """There is no index but that of their age."""
        return await look_through(self._read_headers, wanted, chunk=PAGE)

    async def count_headers(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        return await count_through(self._read_headers, wanted, chunk=PAGE)

    async def _read_headers(self, behind: Place, count: int) -> Sequence[Header]:
        keys = [self._keys.listed, self._keys.headers]
        created_at, id_ = behind
        found = await self._lines.run("list_headers", keys, [repr(created_at), id_, count])
        return [decode_header(each) for each in found]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        first, last = b"[" + prefix.encode(), b"[" + prefix.encode() + LAST
        found: list[ExecutionId] = []
        while len(found) < limit:
            page = await self._lines.call(
                "ZRANGEBYLEX", self._keys.ids, first, last, "LIMIT", 0, PAGE
            )
            names = [ExecutionId(each.decode()) for each in page]
            found += [name for name in names if "." in prefix or "." not in name]
            if len(page) < PAGE:
                break
            first = b"(" + page[-1]
        return found[:limit]

    async def list_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> Sequence[DeadLetter]:
        return await self._letters.list(wanted)

    async def count_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> int:
        return await self._letters.count(wanted)

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        return await self._letters.delete(letters)


# The executions below a root, found by their names.

TREES_PAGE = 500


async def children_of(lines: Lines, keys: Keys, root: bytes) -> list[bytes]:
    """By id: a parent comes before its children."""
    found: list[bytes] = []
    first = b"[" + root + b"."
    while True:
        page = await lines.call(
            "ZRANGEBYLEX", keys.ids, first, b"(" + root + b"/", "LIMIT", 0, TREES_PAGE
        )
        found += page
        if len(page) < TREES_PAGE:
            return found
        first = b"(" + page[-1]
