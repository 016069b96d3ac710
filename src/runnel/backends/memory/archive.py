"""Definitions, executions to list and read, and dead letters, in the memory of one process."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import structs

from runnel.backends.matching import (
    build_header_page,
    build_letter_page,
    find_page_start,
    get_filter_states,
    get_page_position,
    matches_filter,
    matches_letter_filter,
)
from runnel.backends.memory.store import MemoryState
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import ConflictError
from runnel.ports.archive import (
    ALL_DEAD_LETTERS,
    ALL_EXECUTIONS,
    DeadLetterFilter,
    Definition,
    ExecutionCount,
    ExecutionFilter,
    HeaderPage,
)
from runnel.ports.records import Record
from runnel.ports.store import ExecutionHeader


class MemoryArchive:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        """A version below zero is one that was deleted."""
        definitions = self._state.definitions
        if hash_ not in definitions or definitions[hash_].version < 0:
            known = [abs(found.version) for found in definitions.values() if found.name == name]
            definitions[hash_] = Definition(
                hash=hash_, name=name, version=max(known, default=0) + 1, document=document
            )
        return definitions[hash_].version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        found = self._state.definitions.get(hash_)
        return found and structs.replace(found, version=abs(found.version))

    async def delete_versions(self, name: str) -> int:
        definitions = self._state.definitions
        found = [each for each in self._list_undeleted() if each.name == name]
        for each in found:
            definitions[each.hash] = structs.replace(each, version=-each.version)
        return len(found)

    def _list_undeleted(self) -> list[Definition]:
        return [found for found in self._state.definitions.values() if found.version > 0]

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        newest: dict[str, Definition] = {}
        for found in sorted(self._list_undeleted(), key=lambda each: each.version):
            newest[found.name] = found
        return [newest[name] for name in sorted(newest) if name > after][:limit]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        found = [each for each in self._list_undeleted() if each.name == name]
        return sorted(found, key=lambda each: each.version, reverse=True)[:limit]

    async def find_version(self, name: str, version: int) -> Definition | None:
        known = self._list_undeleted()
        return next((each for each in known if (each.name, each.version) == (name, version)), None)

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        return self._state.headers.get(execution_id)

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        headers = self._state.headers
        return {each: headers[each] for each in ids if each in headers}

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        return tuple(self._state.histories.get(execution_id, ())[after:])

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        start = find_page_start(criteria)
        known = self._state.headers.values()
        found = [
            each
            for each in known
            if get_page_position(each) < start and matches_filter(each, criteria)
        ]
        found.sort(key=get_page_position, reverse=True)
        return build_header_page(found, criteria)

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        known = self._state.headers.values()
        counts = Counter(header.state for header in known if matches_filter(header, criteria))
        return {
            state: ExecutionCount(number=counts[state]) for state in get_filter_states(criteria)
        }

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        found = [name for name in self._state.headers if name.startswith(prefix)]
        roots = [name for name in found if "." in prefix or "." not in name]
        return sorted(roots)[:limit]

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        return build_letter_page(self._state.dead_letters, criteria)

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        known = self._state.dead_letters
        return sum(matches_letter_filter(letter, criteria) for letter in known)

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        known = self._state.dead_letters
        kept = [letter for letter in known if letter not in letters]
        deleted = len(known) - len(kept)
        known[:] = kept
        return deleted


# Records in the memory of one process.


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
        self._check_revision(kind, key, revision)
        self._state.revision += 1
        record = Record(kind=kind, key=key, data=data, revision=self._state.revision)
        self._state.records[(kind, key)] = record
        return record.revision

    async def delete(self, kind: str, key: str, *, revision: int | None = None) -> bool:
        if (kind, key) not in self._state.records:
            return False
        if revision is not None:
            self._check_revision(kind, key, revision)
        del self._state.records[(kind, key)]
        return True

    def _check_revision(self, kind: str, key: str, expected: int) -> None:
        known = self._state.records.get((kind, key))
        found = 0 if known is None else known.revision
        if found != expected:
            raise ConflictError(kind, key, expected=expected, found=found)
