"""Definitions, executions to list and read, and dead letters, on the server that also runs them."""

from collections.abc import Mapping, Sequence

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.letters import RedisLetters
from runnel.backends.redis.lines import Lines
from runnel.backends.redis.values import decode_header
from runnel.backends.wanted import count_through, look_through
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
    StateCount,
)
from runnel.ports.cursor import Place
from runnel.ports.store import Header

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
