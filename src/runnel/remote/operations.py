"""`Client.operations`: workers, queues, concurrency keys and partitions of a server."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec

from runnel.core.ids import ExecutionId
from runnel.operations.limits import LimitView
from runnel.operations.partitions import PartitionView
from runnel.operations.queues import QueueLine
from runnel.remote.answers import read
from runnel.remote.paths import step
from runnel.remote.transport import Transport

PAGE = 200


class RunningTask(msgspec.Struct, frozen=True, kw_only=True):
    execution_id: ExecutionId
    node_id: str
    item: int | None
    attempt: int
    workflow: str
    handler: str
    started_at: datetime


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """`state` is alive, draining, silent or dead; `queues` is None when it takes tasks of all.

    `tasks` are those that have run for the longest, as of its last heartbeat. What it has not said
    of itself yet is None.
    """

    worker: str
    state: str
    holds: int
    silent_s: float
    host: str | None
    pid: int | None
    queues: Sequence[str] | None
    handlers: Sequence[str]
    concurrency: int | None
    beat_s: float | None
    started_at: datetime | None
    version: str | None
    claimed_at: datetime | None
    tasks: Sequence[RunningTask]


class Operations:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def workers(self) -> list[WorkerView]:
        """The living first, by name, then those that were found dead lately."""
        return read((await self._transport.get("/v1/workers"))["items"], list[WorkerView])

    async def worker(self, name: str) -> WorkerView:
        return read(await self._transport.get(f"/v1/workers/{step(name)}"), WorkerView)

    async def drain(self, worker: str) -> None:
        """Lets it finish what it runs, and end: it is told with its next heartbeat."""
        await self._transport.post(f"/v1/workers/{step(worker)}/drain")

    async def queues(self) -> list[QueueLine]:
        """By name."""
        return read((await self._transport.get("/v1/queues"))["items"], list[QueueLine])

    async def limits(self) -> AsyncIterator[LimitView]:
        """The concurrency keys that somebody holds or waits for, by key."""
        after: str | None = None
        while True:
            query = [("limit", str(PAGE))] + ([] if after is None else [("after", after)])
            page = await self._transport.get("/v1/limits", query)
            for each in read(page["items"], list[LimitView]):
                yield each
            after = page["next"]
            if after is None:
                return

    async def partitions(self) -> list[PartitionView]:
        """By number."""
        return read((await self._transport.get("/v1/partitions"))["items"], list[PartitionView])
