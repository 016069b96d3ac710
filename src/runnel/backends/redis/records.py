"""Records on the server: a hash for each kind, and its keys by name, so that pages can be read."""

from collections.abc import Sequence

from runnel.backends.redis.keys import Keys
from runnel.backends.redis.lines import Lines
from runnel.errors import ConflictError
from runnel.ports.records import Record


class RedisRecords:
    def __init__(self, lines: Lines, keys: Keys) -> None:
        self._lines = lines
        self._keys = keys

    async def get(self, kind: str, key: str) -> Record | None:
        found = await self._lines.call("HGET", self._keys.records + kind, key)
        return None if found is None else _record(kind, key, found)

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        found = await self._lines.run("list_records", self._places(kind), ["(" + after, limit])
        pairs = zip(found[::2], found[1::2], strict=True)
        return [_record(kind, key.decode(), value) for key, value in pairs]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        given, found = await self._lines.run(
            "put_record", [*self._places(kind), self._keys.revisions], [key, revision, data]
        )
        if not given:
            raise ConflictError(kind, key, expected=revision, found=found)
        return int(given)

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        expected = "" if revision is None else revision
        is_gone, found = await self._lines.run("delete_record", self._places(kind), [key, expected])
        if found and not is_gone:
            raise ConflictError(kind, key, expected=revision or 0, found=found)
        return bool(is_gone)

    def _places(self, kind: str) -> Sequence[str]:
        return (self._keys.records + kind, self._keys.record_names + kind)


def _record(kind: str, key: str, value: bytes) -> Record:
    revision, _, data = value.partition(b" ")
    return Record(kind=kind, key=key, data=data, revision=int(revision))
