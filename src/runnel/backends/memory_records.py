"""Records in the memory of one process."""

from collections.abc import Sequence

from runnel.backends.memory_state import MemoryState
from runnel.errors import ConflictError
from runnel.ports.records import Record


class MemoryRecords:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def get(self, kind: str, key: str) -> Record | None:
        return self._state.records.get((kind, key))

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        found = self._state.records.values()
        wanted = [each for each in found if each.kind == kind and each.key > after]
        return sorted(wanted, key=lambda each: each.key)[:limit]

    async def put(self, kind: str, key: str, data: bytes, *, revision: int) -> int:
        self._check(kind, key, revision)
        self._state.revision += 1
        record = Record(kind=kind, key=key, data=data, revision=self._state.revision)
        self._state.records[(kind, key)] = record
        return record.revision

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        if (kind, key) not in self._state.records:
            return False
        if revision is not None:
            self._check(kind, key, revision)
        del self._state.records[(kind, key)]
        return True

    def _check(self, kind: str, key: str, expected: int) -> None:
        known = self._state.records.get((kind, key))
        found = 0 if known is None else known.revision
        if found != expected:
            raise ConflictError(kind, key, expected=expected, found=found)
