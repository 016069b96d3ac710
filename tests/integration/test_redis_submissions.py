"""A Redis that refuses writes in the middle of a batch: all its executions are stored, or none."""

import asyncio
from collections.abc import Iterator

import pytest

from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.options import RedisOptions
from runnel.client.submissions import INPUTS_MAX
from runnel.core.commands import CancelExecution, CreateExecution
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.values import make_inline_value
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import StoreError
from runnel.ports.archive import ExecutionFilter
from tests.redis_server import flush_server, get_password

SPARE_BYTES = 4_000_000


def send(server: RedisServer, command: str) -> str:
    return redis_wire.send_command(server.port, get_password(server), command)


@pytest.fixture
def full_redis(shared_redis: RedisServer) -> Iterator[RedisServer]:
    """A server with room for some of the executions. It refuses a script only before its start."""
    flush_server(shared_redis)
    info = send(shared_redis, "INFO memory")
    used = int(info.split("used_memory:")[1].split()[0])
    send(shared_redis, f"CONFIG SET maxmemory {used + SPARE_BYTES}")
    yield shared_redis
    send(shared_redis, "CONFIG SET maxmemory 0")


def make_creation(number: int) -> CreateExecution:
    return CreateExecution(
        execution_id=ExecutionId(f"x{number}"),
        workflow="w",
        definition=DefinitionHash("hash"),
        version=1,
        input=make_inline_value("x" * 4_000),
        created_at=float(number),
    )


async def test_a_batch_is_stored_completely_or_not_at_all(full_redis: RedisServer) -> None:
    backend = await RedisBackend.open(
        full_redis.url, RedisOptions(partitions=4), clock=RealClock(), ids=RandomIdGenerator()
    )
    others = [CancelExecution(execution_id=ExecutionId(f"y{n}"), reason="") for n in range(300)]
    batch = [make_creation(number) for number in range(INPUTS_MAX)]
    try:
        sent = await asyncio.gather(
            *(backend.mailbox.send([other]) for other in others),
            backend.mailbox.send(batch),
            return_exceptions=True,
        )
        headers = await backend.archive.list_headers(ExecutionFilter(limit=INPUTS_MAX))
    finally:
        await backend.close()

    expected = 0 if isinstance(sent[-1], StoreError) else INPUTS_MAX
    assert len(headers.headers) == expected
