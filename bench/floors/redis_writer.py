"""The writer of the floor: `python -m bench.floors.redis_writer`.

It reads the inbox, counts parents and commits. Meanwhile it archives the journal in PostgreSQL.
"""

import asyncio

import msgspec

from bench.floors.batch import (
    COMMANDS_MAX,
    VERSION,
    FloorBatch,
    FloorExecutions,
    GraphShape,
    build_shape,
)
from bench.floors.postgres import run_archiver
from bench.floors.redis_connection import (
    FloorConfig,
    FloorConnection,
    FloorKeys,
    open_connection,
    read_config,
)
from bench.floors.workloads import WORKLOADS
from runnel.backends.redis.connection import Arg
from runnel.core.codec import decode_message
from runnel.core.effects import TaskMessage
from runnel.core.ids import ExecutionId, Nonce, TaskToken
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT, NULL
from runnel.core.workflow import TIMEOUT_S_DEFAULT
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports.store import ExecutionHeader

BLOCK_MS = 1_000
HANDLER, QUEUE = "noop", "tasks:noop"
CONFIG = msgspec.Raw(b"{}")

_encode = msgspec.json.Encoder().encode


async def run_writer(config: FloorConfig) -> None:
    async with asyncio.TaskGroup() as group:
        if config.postgres_url is not None:
            group.create_task(run_archiver(config))
        async with (
            open_connection(config.redis_url) as connection,
            open_connection(config.redis_url) as blocking_connection,
        ):
            await _run_commits(config, connection, blocking_connection)


async def _run_commits(
    config: FloorConfig, connection: FloorConnection, blocking_connection: FloorConnection
) -> None:
    shape = build_shape(WORKLOADS[config.workload].workflow())
    names, clock, ids, runs = config.keys, RealClock(), RandomIdGenerator(), FloorExecutions(shape)
    sha = await connection.load_script("commit")
    keys = _list_keys(names)
    sequence, position = 0, b"0-0"
    while True:
        streams = await blocking_connection.call(
            *("XREAD", "COUNT", COMMANDS_MAX, "BLOCK", BLOCK_MS, "STREAMS", names.inbox, position)
        )
        if not streams:
            continue
        entries = streams[0][1]
        position = entries[-1][0]
        commands = [decode_message(fields[1]) for _, fields in entries]
        batch = runs.decide(commands, clock.now(), Nonce(ids.nonce()))
        sequence += 1
        args: list[Arg] = [sequence, position, _compute_next_position(position)]
        args += _build_args(shape, batch)
        await connection.call("EVALSHA", sha, len(keys), *keys, *args)


def _list_keys(keys: FloorKeys) -> list[str]:
    return [
        *(keys.partition, keys.inbox, keys.running, keys.ended, keys.headers),
        *(keys.journal, keys.tasks, keys.out, keys.ends, keys.waiting),
        *(keys.history, keys.held, keys.hand),
    ]


def _compute_next_position(position: bytes) -> str:
    milliseconds, _, number = position.decode().partition("-")
    return f"{milliseconds}-{int(number) + 1}"


def _build_args(shape: GraphShape, batch: FloorBatch) -> list[Arg]:
    entries = batch.encode_entries()
    args: list[Arg] = [len(entries)]
    for entry in entries:
        args += entry
    args.append(len(batch.started))
    for id_, created_at in batch.started:
        args += (repr(created_at), id_)
    args.append(len(batch.ended))
    for ended in batch.ended:
        args += (ended[0], _encode(_make_header(shape, batch, ended)))
    args.append(len(batch.tasks))
    for token in batch.tasks:
        args += (_encode(token), _encode(_make_task(shape, token, batch.now)))
    return args


def _make_header(
    shape: GraphShape, batch: FloorBatch, ended: tuple[ExecutionId, float, float]
) -> ExecutionHeader:
    return ExecutionHeader(
        execution_id=ended[0],
        workflow=shape.workflow,
        version=VERSION,
        definition=shape.definition,
        state=ExecutionState.COMPLETED,
        created_at=ended[1],
        started_at=ended[2],
        finished_at=batch.now,
    )


def _make_task(shape: GraphShape, token: TaskToken, now: float) -> TaskMessage:
    parents = shape.parents[token.node_id]
    return TaskMessage(
        token=token,
        handler=HANDLER,
        queue=QUEUE,
        config=CONFIG,
        inputs=dict.fromkeys(parents, NULL),
        parents=len(parents),
        execution_input=EMPTY_OBJECT,
        workflow=shape.workflow,
        version=VERSION,
        execution_started_at=now,
        timeout_s=TIMEOUT_S_DEFAULT,
        issued_at=now,
    )


if __name__ == "__main__":
    asyncio.run(run_writer(read_config()))
