"""The floor on servers: who submits is this process, one writer and the workers are others."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.floors.batch import creation, shape_of
from bench.floors.embedded import tell
from bench.floors.postgres import open_database, record
from bench.floors.redis_connection import FloorLine, Plan, open_line
from bench.floors.workloads import WORKLOADS
from runnel.backends.postgres.database import Database
from runnel.backends.redis.connection import Arg
from runnel.bench.servers import Fleet
from runnel.core.codec import encode_message
from runnel.core.commands import CreateExecution
from runnel.core.ids import ExecutionId
from runnel.engine.clock import RealClock, RealIds
from runnel.errors import ServerFailedError
from runnel.ports.store import pending_header

REPOSITORY = Path(__file__).resolve().parents[2]
WRITER = ("bench.floors.redis_writer",)
WORKER = ("bench.floors.redis_worker",)
BLOCK_MS = 1_000
SENT_AT_ONCE = 500
WARMING = 20
START_LIMIT_S = 30.0

_encode = msgspec.json.Encoder().encode


class RedisFloor:
    """`execute` submits one execution and waits for its end."""

    def __init__(self, plan: Plan, database: Database | None) -> None:
        self._plan = plan
        self._database = database
        self._shape = shape_of(WORKLOADS[plan.workload].workflow())
        self._clock = RealClock()
        self._ids = RealIds()
        self._submitted: list[tuple[CreateExecution, asyncio.Future[None]]] = []
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._has_submitted = asyncio.Event()

    async def execute(self) -> None:
        loop = asyncio.get_running_loop()
        execution_id = ExecutionId(self._ids.execution_id())
        command = creation(self._shape, execution_id, self._clock.now())
        sent: asyncio.Future[None] = loop.create_future()
        ended = self._waiting[execution_id] = loop.create_future()
        self._submitted.append((command, sent))
        self._has_submitted.set()
        await sent
        await ended

    async def send(self) -> None:
        """Those who come while a call is under way share the next one."""
        async with open_line(self._plan.redis_url) as line:
            sha = await line.load("send")
            while True:
                await self._has_submitted.wait()
                self._has_submitted.clear()
                submitted, self._submitted = self._submitted, []
                commands = [command for command, _ in submitted]
                if self._database is not None:
                    await record(self._database, commands)
                for first in range(0, len(commands), SENT_AT_ONCE):
                    await self._deliver(line, sha, commands[first : first + SENT_AT_ONCE])
                for _, sent in submitted:
                    tell(sent)

    async def _deliver(
        self, line: FloorLine, sha: str, commands: Sequence[CreateExecution]
    ) -> None:
        names = self._plan.names
        args: list[Arg] = ["EVALSHA", sha, 4, names.inbox, names.headers, names.listed, names.ids]
        for each in commands:
            header = _encode(pending_header(each))
            args += (each.execution_id, encode_message(each), header, repr(each.created_at))
        await line.call(*args)

    async def hear(self) -> None:
        key, position = self._plan.names.ends, b"0-0"
        async with open_line(self._plan.redis_url) as line:
            while True:
                found = await line.call("XREAD", "BLOCK", BLOCK_MS, "STREAMS", key, position)
                for place, fields in found[0][1] if found else ():
                    position = place
                    for execution_id in fields[1].decode().split("\n"):
                        tell(self._waiting.pop(execution_id))


@asynccontextmanager
async def redis_floor(plan: Plan, workers: int) -> AsyncIterator[RedisFloor]:
    """Warm; what it leaves behind has the name of the plan."""
    database = None if plan.postgres_url is None else await open_database(plan)
    places = {"writer-0": WRITER, **{f"worker-{number}": WORKER for number in range(workers)}}
    floor = RedisFloor(plan, database)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
            Fleet(places, plan.environ(), Path(folder), import_from=[REPOSITORY]) as fleet,
        ):
            async with fleet.watched(RealClock()), asyncio.TaskGroup() as group:
                loops = [group.create_task(floor.send()), group.create_task(floor.hear())]
                try:
                    await _warm_up(floor)
                    yield floor
                finally:
                    for loop in loops:
                        loop.cancel()
    finally:
        if database is not None:
            await database.close()


async def _warm_up(floor: RedisFloor) -> None:
    try:
        async with RealClock().timeout(START_LIMIT_S):
            await asyncio.gather(*[floor.execute() for _ in range(WARMING)])
    except TimeoutError as error:
        problem = f"of the floor did nothing within {START_LIMIT_S:g} s"
        raise ServerFailedError("writer", problem) from error
