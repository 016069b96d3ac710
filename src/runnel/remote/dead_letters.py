"""`Client.dead_letters`: tasks of a server that need a person."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

import msgspec

from runnel.authoring.payloads import encode_payload
from runnel.core.ids import ExecutionId
from runnel.core.json_types import Json
from runnel.core.states import ExecutionState
from runnel.remote.answers import read
from runnel.remote.paths import step
from runnel.remote.transport import Call, Query, Transport

PATH = "/v1/dead-letters"
PAGE = 200


class LetterView(msgspec.Struct, frozen=True, kw_only=True):
    """What a task was given, and what was wrong with it.

    `name` is what the other methods take. `execution_status` is that of the execution which a retry
    would rerun; None in lists, and when there is none.
    """

    name: str
    execution_id: ExecutionId
    workflow: str
    node: str
    item: int | None
    attempts: int
    queue: str
    handler: str
    reason: str
    error: str
    traceback: str | None
    config: Json
    rejected_at: datetime
    execution_status: ExecutionState | None = None


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """All letters of `rerun_of` are gone: `execution_id` runs again what failed there."""

    execution_id: ExecutionId
    rerun_of: ExecutionId
    letters: Sequence[str]


class NotRetried(msgspec.Struct, frozen=True, kw_only=True):
    rerun_of: ExecutionId
    letters: Sequence[str]
    code: str
    message: str


class ManyRetried(msgspec.Struct, frozen=True, kw_only=True):
    """`left` executions have such letters and were not looked at: call again."""

    retried: Sequence[Retried]
    refused: Sequence[NotRetried]
    left: int


class LettersOf(msgspec.Struct, frozen=True, kw_only=True):
    """Which letters are meant: those that all of the given fields hold for.

    `execution` is the beginning of an execution's id. All letters have to be asked for in so many
    words: `is_all`.
    """

    queue: str | None = None
    workflow: str | None = None
    execution: str = ""
    older_than_s: float = 0.0
    is_all: bool = False


class DeadLetters:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> AsyncIterator[LetterView]:
        """Newest first, page by page; `execution` is the beginning of an id."""
        place: str | None = None
        while True:
            query = [*_query(queue, workflow, execution), ("limit", str(PAGE))]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get(PATH, query)
            for each in read(page["items"], list[LetterView]):
                yield each
            place = page["next"]
            if place is None:
                return

    async def count(
        self, *, queue: str | None = None, workflow: str | None = None, execution: str = ""
    ) -> int:
        answer = await self._transport.get(f"{PATH}/count", _query(queue, workflow, execution))
        return read(answer["count"], int)

    async def get(self, name: str) -> LetterView:
        """By its name, in which the first characters of the execution do."""
        return read(await self._transport.get(f"{PATH}/{step(name)}"), LetterView)

    async def retry(self, name: str, configs: Mapping[str, Json] | None = None) -> Retried:
        """Runs again what failed in its execution, with other configs of its nodes if given.

        Raises WrongStateError while that execution is not final.
        """
        given = {
            node: msgspec.Raw(encode_payload(config, where=f"configs.{node}"))
            for node, config in (configs or {}).items()
        }
        body = {"configs": given}
        return read(await self._transport.post(f"{PATH}/{step(name)}/retry", body), Retried)

    async def retry_many(self, which: LettersOf, *, limit: int = 100) -> ManyRetried:
        """Those of `limit` executions at most, the oldest first."""
        body = {**_selection(which), "limit": limit}
        return read(await self._transport.post(f"{PATH}/retry", body), ManyRetried)

    async def purge(self, name: str) -> None:
        """Removes it for good; its execution stays as it is."""
        await self._transport.send(Call(method="DELETE", path=f"{PATH}/{step(name)}"))

    async def purge_many(self, which: LettersOf) -> int:
        """How many were removed."""
        answer = await self._transport.post(f"{PATH}/purge", _selection(which))
        return read(answer["purged"], int)


def _query(queue: str | None, workflow: str | None, execution: str) -> Query:
    given = {"queue": queue, "workflow": workflow, "execution": execution}
    return [(name, value) for name, value in given.items() if value]


def _selection(which: LettersOf) -> dict[str, Json]:
    fields: dict[str, Json] = msgspec.to_builtins(which)
    fields["all"] = fields.pop("is_all")
    return fields
