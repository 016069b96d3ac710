"""Reads running and recently ended executions from Redis, and all others from PostgreSQL."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec import structs

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.redis.archive import RedisArchive
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.errors import StoreError
from runnel.ports.archive import (
    Definition,
    ExecutionFilter,
    HeaderPage,
)
from runnel.ports.store import ExecutionHeader

# The time that Redis keeps a definition after its last use. While PostgreSQL is down, only this
# copy can be read.
DEFINITION_TTL_S = 7 * 24 * 3600


class RedisPostgresArchive:
    """Implements the Archive port.

    A single execution is read from Redis first, because Redis has the state of its last commit.

    Lists are read from PostgreSQL, and then show the states that Redis has. A list filtered by
    state may lack an execution that reached this state after the last flush of the archiver. A
    submitted execution is in both stores before the submit returns.
    """

    def __init__(self, hot: RedisArchive, cold: PostgresArchive) -> None:
        self._hot = hot
        self._cold = cold
        self.delete_versions = cold.delete_versions
        self.list_workflows = cold.list_workflows
        self.list_versions = cold.list_versions
        self.find_version = cold.find_version
        # The counts of the archive can lag by one flush of the archiver.
        self.count_headers = cold.count_headers
        self.list_dead_letters = cold.list_dead_letters
        self.count_dead_letters = cold.count_dead_letters

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
                with suppress(StoreError):  # a Redis that refuses writes can still be read
                    await self._hot.cache_definition(definition, ttl_s=DEFINITION_TTL_S)
        return definition

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
        """Returns the history entries of the execution, from Redis or else from PostgreSQL.

        An execution that is in Redis without a history has not started, so PostgreSQL is not
        queried.
        """
        entries = await self._hot.load(execution_id, after=after)
        header = await self._hot.get_header(execution_id)
        if header is None:
            return entries or await self._cold.load(execution_id, after=after)
        if await self._find_ended(header) is None:
            return entries
        return await self._cold.load(execution_id, after=after)

    async def _find_ended(self, hot: ExecutionHeader) -> ExecutionHeader | None:
        """Returns the header of PostgreSQL if it is final although the execution still runs in
        Redis.

        A final state never changes, so such a Redis was rolled back. The next owner of the
        partition restores the final state.
        """
        if hot.state in FINAL_EXECUTION_STATES:
            return None
        with suppress(StoreError):
            cold = await self._cold.get_header(hot.execution_id)
            if cold is not None and cold.state in FINAL_EXECUTION_STATES:
                return cold
        return None

    async def list_headers(self, criteria: ExecutionFilter) -> HeaderPage:
        """Lists executions from PostgreSQL, with the headers of Redis for executions that are not
        final.

        If Redis can't be reached, all headers are those of PostgreSQL.
        """
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

    async def _refresh_headers(self, page: Sequence[ExecutionHeader]) -> Sequence[ExecutionHeader]:
        unfinished = [
            header.execution_id for header in page if header.state not in FINAL_EXECUTION_STATES
        ]
        if not unfinished:
            return page
        current: Mapping[ExecutionId, ExecutionHeader] = {}
        with suppress(StoreError):
            current = await self._hot.get_headers(unfinished)
        return [current.get(header.execution_id, header) for header in page]

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        """Returns the ids that begin with `prefix`; while PostgreSQL is down, only
        those in Redis.
        """
        try:
            return await self._cold.find_ids(prefix, limit=limit)
        except StoreError:
            ids = await self._hot.find_ids(prefix, limit=limit)
            if not ids:
                raise
            return ids

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        """Deletes the letters in PostgreSQL, which has all of them, and their copies in Redis."""
        deleted = await self._cold.delete_dead_letters(letters)
        await self._hot.delete_dead_letters(letters)
        return deleted
