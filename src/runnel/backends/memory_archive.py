"""Definitions, executions to list and read, and dead letters, in the memory of one process."""

from collections.abc import Mapping, Sequence

from runnel.backends.letters import is_wanted, page_of
from runnel.backends.memory_state import MemoryState
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.ports.archive import ALL_LETTERS, Definition, ExecutionFilter, LetterFilter
from runnel.ports.store import Header


class MemoryArchive:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        definitions = self._state.definitions
        if hash_ not in definitions:
            known = [found.version for found in definitions.values() if found.name == name]
            definitions[hash_] = Definition(
                hash=hash_, name=name, version=max(known, default=0) + 1, document=document
            )
        return definitions[hash_].version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        return self._state.definitions.get(hash_)

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        newest: dict[str, Definition] = {}
        for found in sorted(self._state.definitions.values(), key=lambda each: each.version):
            newest[found.name] = found
        return [newest[name] for name in sorted(newest) if name > after][:limit]

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        found = [each for each in self._state.definitions.values() if each.name == name]
        return sorted(found, key=lambda each: each.version, reverse=True)[:limit]

    async def find_version(self, name: str, version: int) -> Definition | None:
        known = self._state.definitions.values()
        return next((each for each in known if (each.name, each.version) == (name, version)), None)

    async def get_header(self, execution_id: ExecutionId) -> Header | None:
        return self._state.headers.get(execution_id)

    async def get_headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        headers = self._state.headers
        return {each: headers[each] for each in ids if each in headers}

    async def load(self, execution_id: ExecutionId) -> Sequence[bytes]:
        return tuple(self._state.histories.get(execution_id, ()))

    async def list_headers(self, wanted: ExecutionFilter) -> Sequence[Header]:
        headers = self._state.headers
        after = None if wanted.after is None else headers.get(wanted.after)
        if wanted.after is not None and after is None:
            return ()
        found = [header for header in headers.values() if _is_wanted(header, wanted)]
        if after is not None:
            found = [header for header in found if _age(header) < _age(after)]
        found.sort(key=_age, reverse=True)
        return found[: wanted.limit]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        found = [name for name in self._state.headers if name.startswith(prefix)]
        roots = [name for name in found if "." in prefix or "." not in name]
        return sorted(roots)[:limit]

    async def list_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> Sequence[DeadLetter]:
        return page_of(self._state.dead_letters, wanted)

    async def count_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> int:
        return sum(is_wanted(letter, wanted) for letter in self._state.dead_letters)

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        known = self._state.dead_letters
        kept = [letter for letter in known if letter not in letters]
        deleted = len(known) - len(kept)
        known[:] = kept
        return deleted


def _age(header: Header) -> tuple[float, str]:
    return (header.created_at, header.execution_id)


def _is_wanted(header: Header, wanted: ExecutionFilter) -> bool:
    return (
        (not wanted.states or header.state in wanted.states)
        and (wanted.workflow is None or header.workflow == wanted.workflow)
        and (wanted.with_children or header.parent_id is None)
    )
