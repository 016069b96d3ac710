"""The floor on servers. This process submits; one writer and the workers are child processes."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from bench.floors.batch import build_shape, make_creation
from bench.floors.embedded import resolve_future
from bench.floors.postgres import open_database, record_commands
from bench.floors.redis_connection import FloorConfig, FloorConnection, open_connection
from bench.floors.workloads import WORKLOADS
from runnel.backends.postgres.database import PostgresDatabase
from runnel.backends.redis.connection import Arg
from runnel.bench.servers import ProcessFleet
from runnel.core.codec import encode_message
from runnel.core.commands import CreateExecution
from runnel.core.ids import ExecutionId
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import ServerFailedError
from runnel.ports.store import make_pending_header

REPOSITORY = Path(__file__).resolve().parents[2]
WRITER_COMMAND = ("bench.floors.redis_writer",)
WORKER_COMMAND = ("bench.floors.redis_worker",)
BLOCK_MS = 1_000
SEND_BATCH = 500
WARMUP_EXECUTIONS = 20
START_TIMEOUT_S = 30.0

_encode = msgspec.json.Encoder().encode


class RedisFloor:
    """The floor of a deployment on servers."""

    def __init__(self, config: FloorConfig, database: PostgresDatabase | None) -> None:
        self._config = config
        self._database = database
        self._shape = build_shape(WORKLOADS[config.workload].workflow())
        self._clock = RealClock()
        self._ids = RandomIdGenerator()
        self._submitted: list[tuple[CreateExecution, asyncio.Future[None]]] = []
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._has_submitted = asyncio.Event()

    async def execute(self) -> None:
        loop = asyncio.get_running_loop()
        execution_id = ExecutionId(self._ids.execution_id())
        command = make_creation(self._shape, execution_id, self._clock.now())
        sent: asyncio.Future[None] = loop.create_future()
        ended = self._waiting[execution_id] = loop.create_future()
        self._submitted.append((command, sent))
        self._has_submitted.set()
        await sent
        await ended

    async def send(self) -> None:
        """Sends submitted commands. Submits that arrive during a call share the next one."""
        async with open_connection(self._config.redis_url) as connection:
            sha = await connection.load_script("send")
            while True:
                await self._has_submitted.wait()
                self._has_submitted.clear()
                submitted, self._submitted = self._submitted, []
                commands = [command for command, _ in submitted]
                if self._database is not None:
                    await record_commands(self._database, commands)
                for first in range(0, len(commands), SEND_BATCH):
                    batch = commands[first : first + SEND_BATCH]
                    await self._send_commands(connection, sha, batch)
                for _, sent in submitted:
                    resolve_future(sent)

    async def _send_commands(
        self, connection: FloorConnection, sha: str, commands: Sequence[CreateExecution]
    ) -> None:
        names = self._config.keys
        args: list[Arg] = ["EVALSHA", sha, 4, names.inbox, names.headers, names.listed, names.ids]
        for command in commands:
            header = _encode(make_pending_header(command))
            args += (
                command.execution_id,
                encode_message(command),
                header,
                repr(command.created_at),
            )
        await connection.call(*args)

    async def read_ends(self) -> None:
        key, position = self._config.keys.ends, b"0-0"
        async with open_connection(self._config.redis_url) as connection:
            while True:
                streams = await connection.call(
                    "XREAD", "BLOCK", BLOCK_MS, "STREAMS", key, position
                )
                for entry_id, fields in streams[0][1] if streams else ():
                    position = entry_id
                    for execution_id in fields[1].decode().split("\n"):
                        resolve_future(self._waiting.pop(execution_id))


@asynccontextmanager
async def open_redis_floor(config: FloorConfig, workers: int) -> AsyncIterator[RedisFloor]:
    """Opens a floor that is warmed up. Its data on the servers has the name of the config."""
    database = None if config.postgres_url is None else await open_database(config)
    commands = {
        "writer-0": WRITER_COMMAND,
        **{f"worker-{number}": WORKER_COMMAND for number in range(workers)},
    }
    floor = RedisFloor(config, database)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder,
            ProcessFleet(
                commands, config.environ(), Path(folder), import_from=[REPOSITORY]
            ) as fleet,
        ):
            async with fleet.watch(RealClock()), asyncio.TaskGroup() as group:
                loops = [group.create_task(floor.send()), group.create_task(floor.read_ends())]
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
        async with RealClock().timeout(START_TIMEOUT_S):
            await asyncio.gather(*[floor.execute() for _ in range(WARMUP_EXECUTIONS)])
    except TimeoutError as error:
        problem = f"of the floor did not start within {START_TIMEOUT_S:g} s"
        raise ServerFailedError("writer", problem) from error
