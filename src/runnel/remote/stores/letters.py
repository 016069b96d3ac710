"""Dead letters as a server tells of them."""

from collections.abc import Mapping, Sequence

import msgspec

from runnel.core.effects import DeadLetter
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, Token
from runnel.core.json_types import Json
from runnel.core.retry import ErrorInfo
from runnel.dead_letters import name_of
from runnel.errors import NotFoundError
from runnel.ports.archive import ALL_LETTERS, LetterFilter
from runnel.remote.answers import seconds_of
from runnel.remote.paths import step
from runnel.remote.transport import Call, Query, Transport

PAGE = 500
QUEUE_PREFIX = "tasks:"
INBOX = "inbox"


class RemoteLetters:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        # Where the pages ended that were asked for last, by the name of their last letter.
        self._ends: dict[str, str] = {}

    async def list_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> Sequence[DeadLetter]:
        found: list[DeadLetter] = []
        place = None if wanted.after is None else self._ends.pop(name_of(wanted.after), None)
        while len(found) < wanted.limit:
            query = [*_query(wanted), ("limit", str(min(PAGE, wanted.limit - len(found))))]
            query += [] if place is None else [("after", place)]
            page = await self._transport.get("/v1/dead-letters", query)
            letters = [_letter(each) for each in page["items"]]
            found += [each for each in letters if each.rejected_at < wanted.before]
            place = page["next"]
            if place is None:
                return found
        if place is not None:
            self._ends = {name_of(found[-1]): place}
        return found

    async def count_dead_letters(self, wanted: LetterFilter = ALL_LETTERS) -> int:
        answer = await self._transport.get("/v1/dead-letters/count", _query(wanted))
        return int(answer["count"])

    async def delete_dead_letters(self, letters: Sequence[DeadLetter]) -> int:
        deleted = 0
        for letter in letters:
            path = f"/v1/dead-letters/{step(name_of(letter))}"
            try:
                answer = await self._transport.send(Call(method="DELETE", path=path))
            except NotFoundError:
                continue
            deleted += answer["purged"]
        return deleted


def _query(wanted: LetterFilter) -> Query:
    queue = None if wanted.queue is None else wanted.queue.removeprefix(QUEUE_PREFIX)
    given = {"queue": queue, "workflow": wanted.workflow, "execution": wanted.execution}
    return [(name, value) for name, value in given.items() if value]


def _letter(found: Mapping[str, Json]) -> DeadLetter:
    """One without a node is a command that could not be decided: its name stands for the node."""
    item, queue = found["item"], found["queue"]
    node = found["node"] or found["name"].partition("/")[2]
    kind, _, message = found["error"].partition(": ")
    return DeadLetter(
        token=Token(
            ExecutionId(found["execution_id"]),
            NodeId(node),
            NO_ITEM if item is None else item,
            found["attempts"],
            Nonce(""),
        ),
        queue=queue if queue == INBOX else f"{QUEUE_PREFIX}{queue}",
        handler=found["handler"],
        config=msgspec.Raw(msgspec.json.encode(found["config"])),
        error=ErrorInfo(type=kind, message=message, traceback=found["traceback"]),
        reason=found["reason"],
        rejected_at=seconds_of(found["rejected_at"]),
        workflow=found["workflow"],
    )
