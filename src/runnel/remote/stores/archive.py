"""Definitions, executions and their histories, as a server tells of them."""

from collections.abc import Mapping, Sequence

import msgspec

from runnel.authoring.document import read_document
from runnel.core.codec import VERSION
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.json_types import Json
from runnel.core.states import ExecutionState
from runnel.core.workflow import decode_workflow, encode_workflow
from runnel.errors import NotFoundError
from runnel.ports.archive import (
    ALL_EXECUTIONS,
    Definition,
    ExecutionFilter,
    HeaderPage,
    StateCount,
)
from runnel.ports.store import Header
from runnel.remote.answers import header_of, history_of, page_of, read
from runnel.remote.filters import query_of
from runnel.remote.paths import step
from runnel.remote.sources import document_of
from runnel.remote.stores.letters import RemoteLetters
from runnel.remote.transport import Call, Query

PAGE = 500
# So many ids make an address of 10 kB, which servers and proxies take.
IDS_AT_ONCE = 200


class RemoteArchive(RemoteLetters):
    """Moments are known to the millisecond; what was one entry of a history is one for each event.

    A page has 500 executions at most, whatever the `limit`.
    """

    async def put_definition(self, name: str, hash_: DefinitionHash, document: bytes) -> int:
        body = msgspec.json.encode(document_of(decode_workflow(document)))
        call = Call(method="POST", path="/v1/workflows", body=body, is_repeatable=True)
        return read((await self._transport.send(call))["version"], int)

    async def get_definition(self, hash_: DefinitionHash) -> Definition | None:
        return await self._definition(f"/v1/definitions/{step(hash_)}")

    async def list_workflows(self, *, after: str = "", limit: int = 50) -> Sequence[Definition]:
        found: list[Definition] = []
        place: str | None = after or None
        while len(found) < limit:
            query = [("limit", str(min(PAGE, limit - len(found)))), ("documents", "true")]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get("/v1/workflows", query)
            found += map(_definition, page["items"])
            place = page["next"]
            if place is None:
                break
        return found

    async def list_versions(self, name: str, *, limit: int = 50) -> Sequence[Definition]:
        query = [("limit", str(min(PAGE, limit))), ("documents", "true")]
        try:
            page = await self._transport.get(f"/v1/workflows/{step(name)}/versions", query)
        except NotFoundError:
            return ()
        return [_definition(each) for each in page["items"]]

    async def find_version(self, name: str, version: int) -> Definition | None:
        return await self._definition(f"/v1/workflows/{step(name)}", [("version", str(version))])

    async def _definition(self, path: str, query: Query = ()) -> Definition | None:
        try:
            return _definition(await self._transport.get(path, query))
        except NotFoundError:
            return None

    async def delete_versions(self, name: str) -> int:
        call = Call(method="DELETE", path=f"/v1/workflows/{step(name)}")
        return read((await self._transport.send(call))["versions"], int)

    async def get_header(self, execution_id: ExecutionId) -> Header | None:
        return (await self.get_headers([execution_id])).get(execution_id)

    async def get_headers(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, Header]:
        found: dict[ExecutionId, Header] = {}
        for first in range(0, len(ids), IDS_AT_ONCE):
            some = ids[first : first + IDS_AT_ONCE]
            answer = await self._look_up([("id", each) for each in some])
            found |= {header.execution_id: header for header in answer}
        return found

    async def find_ids(self, prefix: str, *, limit: int = 2) -> Sequence[ExecutionId]:
        found = await self._look_up([("begins", prefix)])
        return [header.execution_id for header in found][:limit]

    async def _look_up(self, query: Query) -> list[Header]:
        answer = await self._transport.get("/v1/executions/lookup", query)
        return [header_of(each) for each in answer["items"]]

    async def load(self, execution_id: ExecutionId, *, after: int = 0) -> Sequence[bytes]:
        """Over HTTP, each event is an entry."""
        path = f"/v1/executions/{step(execution_id)}/history"
        try:
            answer = await self._transport.get(path, [("after", str(after))] if after else ())
        except NotFoundError:
            return ()
        return [
            msgspec.json.encode([VERSION, each.at, [{"type": each.event, **each.fields}]])
            for each in history_of(answer)
        ]

    async def list_headers(self, wanted: ExecutionFilter) -> HeaderPage:
        some = msgspec.structs.replace(wanted, limit=min(PAGE, wanted.limit))
        return page_of(await self._transport.get("/v1/executions", query_of(some)))

    async def count_headers(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        query = query_of(wanted, with_page=False)
        answer = await self._transport.get("/v1/executions/count", query)
        return read(answer["states"], dict[ExecutionState, StateCount])


def _definition(found: Mapping[str, Json]) -> Definition:
    workflow = read_document(found["document"])
    return Definition(
        hash=DefinitionHash(found["workflow_definition_id"]),
        name=found["name"],
        version=found["version"],
        document=encode_workflow(workflow),
    )
