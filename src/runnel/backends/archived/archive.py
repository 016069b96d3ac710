"""Redis knows what runs and what has just ended, PostgreSQL everything, a moment later."""

from collections.abc import Sequence

from runnel.backends.postgres.archive import PostgresArchive
from runnel.backends.redis.archive import RedisArchive
from runnel.core.effects import DeadLetter
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.ports.archive import Definition, ExecutionFilter
from runnel.ports.store import Header

# So long Redis keeps a definition that nobody asks for: with PostgreSQL down, it is the only one.
DEFINITION_KEEP_S = 7 * 24 * 3600


class ArchivedArchive:
    """One execution is asked of Redis first: there it is as its last commit left it.

    Lists come from PostgreSQL, at most one flush of the archiver late. What was submitted is in
    both before its caller is told.
    """

    def __init__(self, hot: RedisArchive, cold: PostgresArchive) -> None:
        self._hot = hot
        self._cold = cold

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        version = await self._cold.put_definition(name, hash_, document)
        definition = Definition(hash=hash_, name=name, version=version, document=document)
        await self._hot.keep_definition(definition, keep_s=DEFINITION_KEEP_S)
        return version

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        found = await self._hot.get_definition(hash_)
        if found is None:
            found = await self._cold.get_definition(hash_)
            if found is not None:
                await self._hot.keep_definition(found, keep_s=DEFINITION_KEEP_S)
        return found

    async def get_header(self, execution_id: ExecutionId) -> Header | None:
        found = await self._hot.get_header(execution_id)
        return found or await self._cold.get_header(execution_id)

    async def load(self, execution_id: ExecutionId) -> Sequence[bytes]:
        found = await self._hot.load(execution_id)
        return found or await self._cold.load(execution_id)

    async def list_headers(self, wanted: ExecutionFilter) -> Sequence[Header]:
        return await self._cold.list_headers(wanted)

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        return await self._cold.find_ids(prefix, limit=limit)

    async def list_dead_letters(self, *, limit: int = 50) -> Sequence[DeadLetter]:
        return await self._cold.list_dead_letters(limit=limit)
