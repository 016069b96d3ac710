"""The lasting side of a backend: definitions, executions to list and read, dead letters."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol

import msgspec

from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import ExecutionState
from runnel.ports.store import Header


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    hash: DefinitionHash
    name: str
    version: int
    document: bytes


class ExecutionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`after` is the id of the last execution of the previous page (newest first)."""

    states: tuple[ExecutionState, ...] = ()
    workflow: str | None = None
    with_children: bool = False
    after: ExecutionId | None = None
    limit: int = 50


class LetterFilter(msgspec.Struct, frozen=True, kw_only=True):
    """`execution` is the beginning of an execution's id; `before` is a time of rejection.

    `after` is the last letter of the previous page (newest first), whether it still is there or
    not.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    before: float = inf
    after: DeadLetter | None = None
    limit: int = 50


ALL_LETTERS = LetterFilter()


class Archive(Protocol):
    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        """The version: the stored one for known content, the next for changed content."""

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None: ...

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        """The newest version of each, by name; `after` is the last name of the previous page."""

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        """Newest first; empty for a name that no workflow has."""

    async def find_version(self, name: str, version: int) -> Definition | None: ...

    async def get_header(self, execution_id: ExecutionId) -> Header | None: ...

    async def get_headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        """Of those that are known; as one call where a call is dear."""

    async def load(self, execution_id: ExecutionId) -> Sequence[bytes]:
        """All history entries in order, whether it runs or ended long ago; empty without any."""

    async def list_headers(self, wanted: ExecutionFilter) -> Sequence[Header]:
        """Newest first, by (created_at, id)."""

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        """Executions whose id begins so, by id: people type the first characters.

        A prefix without a dot finds roots only: the ids of all children begin with their root's.
        """

    async def list_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> Sequence[DeadLetter]:
        """Newest first; of those rejected in the same moment, by their bytes, backwards."""

    async def count_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> int:
        """All that are wanted, whatever `limit` and `after` say."""

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """How many of them were there; they are gone from all places that keep letters."""
