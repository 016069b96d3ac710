"""Who works and who decides, as a server sees it: what it judged to be alive is so here, too."""

from collections.abc import Mapping, Sequence

from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.json_types import Json
from runnel.ports.clock import Clock
from runnel.ports.registry import QueueRecord, RunningTask, WorkerAbout, WorkerRecord
from runnel.ports.store import LeaseRecord
from runnel.remote.answers import read, seconds_of
from runnel.remote.paths import step
from runnel.remote.transport import Transport

QUEUE_PREFIX = "tasks:"
# Who asks for all partitions looks at each of them next.
FRESH_S = 0.5


class RemoteStore:
    """What an onlooker asks of a store: which partition, and who has it."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock
        self._seen: Mapping[int, Json] = {}
        self._seen_at = float("-inf")

    async def route(self, execution_id: ExecutionId, *, is_new: bool = False) -> int:
        path = f"/v1/executions/{step(execution_id)}/partition"
        return int((await self._transport.get(path))["partition"])

    async def partitions(self) -> Sequence[int]:
        return list(await self._look())

    async def observe(self, partition: int) -> LeaseRecord | None:
        """None for an owner that is silent: the server has waited for a sign of it."""
        now = self._clock.monotonic()
        seen = self._seen if now - self._seen_at < FRESH_S else await self._look()
        found = seen.get(partition)
        if found is None or found["owner"] is None or found["is_silent"]:
            return None
        return LeaseRecord(
            partition=partition,
            owner=found["owner"],
            epoch=found["epoch"] or 0,
            counter=_new_counter(now),
        )

    async def _look(self) -> Mapping[int, Json]:
        answer = await self._transport.get("/v1/partitions")
        self._seen = {each["partition"]: each for each in answer["items"]}
        self._seen_at = self._clock.monotonic()
        return self._seen


class RemoteTasks:
    """What an onlooker asks of task queues."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self._transport = transport
        self._clock = clock

    async def workers(self, *, with_dead: bool = False) -> Sequence[WorkerRecord]:
        answer = await self._transport.get("/v1/workers")
        found = [_worker(each, self._clock.monotonic()) for each in answer["items"]]
        return [each for each in found if with_dead or not each.is_dead]

    async def queues(self) -> Sequence[QueueRecord]:
        answer = await self._transport.get("/v1/queues")
        return [
            QueueRecord(
                queue=f"{QUEUE_PREFIX}{each['queue']}",
                depth=each["waiting"],
                waits_s=each["oldest_s"],
            )
            for each in answer["items"]
        ]


def _worker(found: Mapping[str, Json], now: float) -> WorkerRecord:
    about = None
    if found["host"] is not None:
        queues = found["queues"]
        about = WorkerAbout(
            host=found["host"],
            pid=found["pid"],
            queues=None if queues is None else tuple(queues),
            handlers=tuple(found["handlers"]),
            concurrency=found["concurrency"],
            started_at=seconds_of(found["started_at"]),
            version=found["version"],
            is_draining=found["state"] == "draining",
            beat_s=found["beat_s"] or 0.0,
            claimed_at=seconds_of(found["claimed_at"]) if found["claimed_at"] else 0.0,
            tasks=tuple(map(_task, found["tasks"])),
        )
    return WorkerRecord(
        worker=found["worker"],
        counter=0 if found["state"] == "silent" else _new_counter(now),
        holds=found["holds"],
        about=about,
        silent_s=found["silent_s"],
        is_dead=found["state"] == "dead",
    )


def _task(found: Mapping[str, Json]) -> RunningTask:
    item = NO_ITEM if found["item"] is None else found["item"]
    started_at = seconds_of(found["started_at"])
    return read({**found, "item": item, "started_at": started_at}, RunningTask)


def _new_counter(now: float) -> int:
    """Never the same twice in a row: who judges by that finds whoever it is alive."""
    return int(now * 1_000_000)
