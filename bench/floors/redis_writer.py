"""The writer of the floor: `python -m bench.floors.redis_writer`.

Reads what has come, counts parents, commits; and brings the journal into PostgreSQL meanwhile.
"""

import asyncio

import msgspec

from bench.floors.batch import COMMANDS_MAX, VERSION, Batch, Runs, Shape, shape_of
from bench.floors.postgres import archive
from bench.floors.redis_connection import FloorLine, Names, Plan, open_line, read_plan
from bench.floors.workloads import WORKLOADS
from runnel.backends.redis.connection import Arg
from runnel.core.codec import decode_message
from runnel.core.effects import Task
from runnel.core.ids import ExecutionId, Nonce, Token
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT, NULL
from runnel.core.workflow import TIMEOUT_S_DEFAULT
from runnel.engine.clock import RealClock, RealIds
from runnel.ports.store import Header

BLOCK_MS = 1_000
HANDLER, QUEUE = "noop", "tasks:noop"
CONFIG = msgspec.Raw(b"{}")

_encode = msgspec.json.Encoder().encode


async def write(plan: Plan) -> None:
    async with asyncio.TaskGroup() as group:
        if plan.postgres_url is not None:
            group.create_task(archive(plan))
        async with open_line(plan.redis_url) as line, open_line(plan.redis_url) as waiter:
            await _decide(plan, line, waiter)


async def _decide(plan: Plan, line: FloorLine, waiter: FloorLine) -> None:
    shape = shape_of(WORKLOADS[plan.workload].workflow())
    names, clock, ids, runs = plan.names, RealClock(), RealIds(), Runs(shape)
    sha = await line.load("commit")
    keys = _keys(names)
    sequence, position = 0, b"0-0"
    while True:
        found = await waiter.call(
            *("XREAD", "COUNT", COMMANDS_MAX, "BLOCK", BLOCK_MS, "STREAMS", names.inbox, position)
        )
        if not found:
            continue
        entries = found[0][1]
        position = entries[-1][0]
        commands = [decode_message(fields[1]) for _, fields in entries]
        batch = runs.decide(commands, clock.now(), Nonce(ids.nonce()))
        sequence += 1
        args: list[Arg] = [sequence, position, _behind(position)]
        args += _args(shape, batch)
        await line.call("EVALSHA", sha, len(keys), *keys, *args)


def _keys(names: Names) -> list[str]:
    return [
        *(names.partition, names.inbox, names.running, names.ended, names.headers),
        *(names.journal, names.tasks, names.out, names.ends, names.waiting),
        *(names.history, names.held, names.hand),
    ]


def _behind(position: bytes) -> str:
    milliseconds, _, number = position.decode().partition("-")
    return f"{milliseconds}-{int(number) + 1}"


def _args(shape: Shape, batch: Batch) -> list[Arg]:
    entries = batch.entries()
    args: list[Arg] = [len(entries)]
    for entry in entries:
        args += entry
    args.append(len(batch.begun))
    for id_, created_at in batch.begun:
        args += (repr(created_at), id_)
    args.append(len(batch.ended))
    for ended in batch.ended:
        args += (ended[0], _encode(_header(shape, batch, ended)))
    args.append(len(batch.tasks))
    for token in batch.tasks:
        args += (_encode(token), _encode(_task(shape, token, batch.now)))
    return args


def _header(shape: Shape, batch: Batch, ended: tuple[ExecutionId, float, float]) -> Header:
    return Header(
        execution_id=ended[0],
        workflow=shape.workflow,
        version=VERSION,
        definition=shape.definition,
        state=ExecutionState.COMPLETED,
        created_at=ended[1],
        started_at=ended[2],
        finished_at=batch.now,
    )


def _task(shape: Shape, token: Token, now: float) -> Task:
    parents = shape.parents[token.node_id]
    return Task(
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
    asyncio.run(write(read_plan()))
