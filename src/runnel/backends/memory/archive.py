"""Definitions, executions, dead letters and records, in the memory of one process."""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import structs

from runnel.backends.list_filters import (
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
        """Stores the definition and returns its version.

        A negative version in the state marks a deleted definition.
        """
        definitions = self._state.definitions
        if hash_ not in definitions or definitions[hash_].version < 0:
            versions = [
                abs(definition.version)
                for definition in definitions.values()
                if definition.name == name
            ]
            definitions[hash_] = Definition(
                hash=hash_, name=name, version=max(versions, default=0) + 1, document=document
            )
        return definitions[hash_].version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        definition = self._state.definitions.get(hash_)
        return definition and structs.replace(definition, version=abs(definition.version))

    async def delete_versions(self, name: str) -> int:
        definitions = self._state.definitions
        versions = [definition for definition in self._list_undeleted() if definition.name == name]
        for definition in versions:
            definitions[definition.hash] = structs.replace(definition, version=-definition.version)
        return len(versions)

    def _list_undeleted(self) -> list[Definition]:
        return [
            definition for definition in self._state.definitions.values() if definition.version > 0
        ]

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        newest: dict[str, Definition] = {}
        for definition in sorted(self._list_undeleted(), key=lambda stored: stored.version):
            newest[definition.name] = definition
        return [newest[name] for name in sorted(newest) if name > after][:limit]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        versions = [definition for definition in self._list_undeleted() if definition.name == name]
        return sorted(versions, key=lambda definition: definition.version, reverse=True)[:limit]

    async def find_version(self, name: str, version: int) -> Definition | None:
        undeleted = self._list_undeleted()
        return next(
            (
                definition
                for definition in undeleted
                if (definition.name, definition.version) == (name, version)
            ),
            None,
        )

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        return self._state.headers.get(execution_id)

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        headers = self._state.headers
        return {
            execution_id: headers[execution_id] for execution_id in ids if execution_id in headers
        }

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        return tuple(self._state.histories.get(execution_id, ())[after:])

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        start = find_page_start(criteria)
        headers = self._state.headers.values()
        matching = [
            header
            for header in headers
            if get_page_position(header) < start and matches_filter(header, criteria)
        ]
        matching.sort(key=get_page_position, reverse=True)
        return build_header_page(matching, criteria)

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        headers = self._state.headers.values()
        counts = Counter(header.state for header in headers if matches_filter(header, criteria))
        return {
            state: ExecutionCount(number=counts[state]) for state in get_filter_states(criteria)
        }

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        names = [name for name in self._state.headers if name.startswith(prefix)]
        roots = [name for name in names if "." in prefix or "." not in name]
        return sorted(roots)[:limit]

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        return build_letter_page(self._state.dead_letters, criteria)

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        letters = self._state.dead_letters
        return sum(matches_letter_filter(letter, criteria) for letter in letters)

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        stored = self._state.dead_letters
        kept = [letter for letter in stored if letter not in letters]
        deleted = len(stored) - len(kept)
        stored[:] = kept
        return deleted


# -- records -----------------------------------------------------------------------------------


class MemoryRecords:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def get(self, kind: str, key: str) -> Record | None:
        return self._state.records.get((kind, key))

    async def list(self, kind: str, *, after: str = "", limit: int = 50) -> Sequence[Record]:
        records = self._state.records.values()
        matching = [record for record in records if record.kind == kind and record.key > after]
        return sorted(matching, key=lambda record: record.key)[:limit]

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
        record = self._state.records.get((kind, key))
        current = 0 if record is None else record.revision
        if current != expected:
            raise ConflictError(kind, key, expected=expected, found=current)
