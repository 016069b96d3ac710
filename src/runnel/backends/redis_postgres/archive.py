"""Reads running and just ended executions from Redis, and all others from PostgreSQL."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import structs

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.redis.archive import RedisArchive
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.errors import StoreError
from runnel.ports.archive import (
    ALL_DEAD_LETTERS,
    ALL_EXECUTIONS,
    DeadLetterFilter,
    Definition,
    ExecutionCount,
    ExecutionFilter,
    HeaderPage,
)
from runnel.ports.store import ExecutionHeader

# So long Redis keeps a definition that nobody asks for: with PostgreSQL down, it is the only one.
DEFINITION_TTL_S = 7 * 24 * 3600


class RedisPostgresArchive:
    """One execution is asked of Redis first: there it is as its last commit left it.

    Lists come from PostgreSQL: what is on them is as Redis has it, but what began or reached a
    state less than a flush of the archiver ago may be missing from a list of that state. What was
    submitted is in both before its caller is told.
    """

    def __init__(self, hot: RedisArchive, cold: PostgresArchive) -> None:
        self._hot = hot
        self._cold = cold

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        version = await self._cold.put_definition(name, hash_, document)
        definition = Definition(hash=hash_, name=name, version=version, document=document)
        await self._hot.cache_definition(definition, ttl_s=DEFINITION_TTL_S)
        return version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        definition = await self._hot.get_definition(hash_)
        if definition is None:
            definition = await self._cold.get_definition(hash_)
            if definition is not None:
                await self._hot.cache_definition(definition, ttl_s=DEFINITION_TTL_S)
        return definition

    async def delete_versions(self, name: str) -> int:
        return await self._cold.delete_versions(name)

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        return await self._cold.list_workflows(after=after, limit=limit)

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        return await self._cold.list_versions(name, limit=limit)

    async def find_version(self, name: str, version: int) -> Definition | None:
        return await self._cold.find_version(name, version)

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader | None:
        header = await self._hot.get_header(execution_id)
        if header is None:
            return await self._cold.get_header(execution_id)
        return await self._find_ended(header) or header

    async def get_headers(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionHeader]:
        hot = await self._hot.get_headers(ids)
        forgotten = [execution_id for execution_id in ids if execution_id not in hot]
        cold = await self._cold.get_headers(forgotten) if forgotten else {}
        return {**hot, **cold}

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        """What Redis knows and has no history of has not begun: PostgreSQL knows no more."""
        entries = await self._hot.load(execution_id, after=after)
        header = await self._hot.get_header(execution_id)
        if header is None:
            return entries or await self._cold.load(execution_id, after=after)
        if await self._find_ended(header) is None:
            return entries
        return await self._cold.load(execution_id, after=after)

    async def _find_ended(self, hot: ExecutionHeader) -> ExecutionHeader | None:
        """As PostgreSQL has an execution that goes on in Redis and has ended there.

        An end is for good: such a Redis was set back, and gets it back from its next owners.
        """
        if hot.state in FINAL_EXECUTION_STATES:
            return None
        with suppress(StoreError):
            cold = await self._cold.get_header(hot.execution_id)
            if cold is not None and cold.state in FINAL_EXECUTION_STATES:
                return cold
        return None

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        """What is not final in the archive is shown as Redis has it, if Redis can be asked."""
        headers: list[ExecutionHeader] = []
        remaining = criteria
        while True:
            page = await self._cold.list_headers(remaining)
            current = await self._refresh_headers(page.headers)
            headers += [
                header
                for header in current
                if not criteria.states or header.state in criteria.states
            ]
            is_short = len(page.headers) < remaining.limit
            if is_short or page.next is None or len(headers) == criteria.limit:
                return HeaderPage(headers=headers, next=page.next)
            remaining = structs.replace(
                remaining, after=page.next, limit=criteria.limit - len(headers)
            )

    async def count_headers(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, ExecutionCount]:
        """As the archive has them, which is a flush of the archiver behind."""
        return await self._cold.count_headers(criteria)

    async def _refresh_headers(self, page: Sequence[ExecutionHeader]) -> Sequence[ExecutionHeader]:
        unfinished = [
            header.execution_id for header in page if header.state not in FINAL_EXECUTION_STATES
        ]
        if not unfinished:
            return page
        known: Mapping[ExecutionId, ExecutionHeader] = {}
        with suppress(StoreError):
            known = await self._hot.get_headers(unfinished)
        return [known.get(header.execution_id, header) for header in page]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        """While PostgreSQL can't be asked, those that Redis has: what runs and what just ended."""
        try:
            return await self._cold.find_ids(prefix, limit=limit)
        except StoreError:
            ids = await self._hot.find_ids(prefix, limit=limit)
            if not ids:
                raise
            return ids

    async def list_dead_letters(
        self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS
    ) -> Sequence[DeadLetter]:
        return await self._cold.list_dead_letters(criteria)

    async def count_dead_letters(self, criteria: DeadLetterFilter = ALL_DEAD_LETTERS) -> int:
        return await self._cold.count_dead_letters(criteria)

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """PostgreSQL has them all: what Redis still has besides is for those who look there."""
        deleted = await self._cold.delete_dead_letters(letters)
        await self._hot.delete_dead_letters(letters)
        return deleted
