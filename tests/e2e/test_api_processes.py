"""`runnel api --workers` starts several processes, and they end together."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.redis import RedisServer
from tests.e2e.program import DEADLINE_S, Program, RunningProgram
from tests.waiting import wait_for_value, wait_until

pytestmark = pytest.mark.e2e

ANSWERS = "Runnel answers on "


@asynccontextmanager
async def two_api_processes(
    folder: Path, redis: RedisServer
) -> AsyncIterator[tuple[RunningProgram, list[int]]]:
    """Yields the supervisor process and the ids of its two API processes."""
    servers = {"REDIS_URL": redis.url, "REDIS_PREFIX": "processes"}
    command = ("api", "--workers", "2", "--port", "0")
    async with Program(folder).running(*command, **servers) as running:
        url = (await running.read_until(ANSWERS)).removeprefix(ANSWERS)
        await wait_until(lambda: len(list_children(running.pid)) == 2)
        async with httpx.AsyncClient(base_url=url) as http:

            async def is_live() -> bool | None:
                return (await http.get("/health/live", timeout=DEADLINE_S)).is_success or None

            await wait_for_value(is_live, every_s=0.1, deadline_s=DEADLINE_S)
        yield running, list_children(running.pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_api_processes_end_when_their_supervisor_is_killed(
    tmp_path: Path, shared_redis: RedisServer
) -> None:
    async with two_api_processes(tmp_path, shared_redis) as (running, children):
        running.send(signal.SIGKILL)
        await running.wait()

        await wait_until(lambda: not any(map(is_alive, children)), DEADLINE_S)

    assert len(children) == 2


async def test_ctrl_c_in_a_terminal_reaches_each_api_process_once(
    tmp_path: Path, shared_redis: RedisServer
) -> None:
    """A terminal signals a whole process group, and a second signal would skip the drain.

    So the API processes are in another group than their supervisor.
    """
    async with two_api_processes(tmp_path, shared_redis) as (running, children):
        assert {os.getpgid(child) for child in children}.isdisjoint({os.getpgid(running.pid)})

        running.send(signal.SIGINT)
        code, _, _ = await running.wait()

    assert code == 0


async def test_an_api_process_that_cannot_start_is_not_restarted(tmp_path: Path) -> None:
    ended = Program(tmp_path).run(
        *("api", "--workers", "2", "--port", "0", "--redis-url", "redis://127.0.0.1:1/0"),
        RUNNEL_START_TIMEOUT="0",
    )

    assert ended.returncode == 1
    assert "can't use the Redis" in ended.stderr
    assert "starting another" not in ended.stderr
    assert ended.stderr.rstrip().endswith("can't be started; see the error above")
