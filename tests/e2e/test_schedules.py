"""Schedules on real servers: a killed orchestrator neither loses nor repeats a tick."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.stores import open_store_session
from runnel.cli.main import run_command
from runnel.core.states import ExecutionState
from runnel.ports.archive import ExecutionFilter
from runnel.settings import read_settings
from runnel.views.execution import ExecutionSummary
from tests.e2e.program import DEADLINE_S, Program
from tests.waiting import wait_for_value

pytestmark = pytest.mark.e2e

NAMES = ["a", "b", "c"]
BEFORE = 2
AFTER = 8


async def test_each_tick_fires_once_although_an_orchestrator_is_killed(
    tmp_path: Path,
    own_redis: RedisServer,
    own_postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program(tmp_path)
    environment = {
        "REDIS_URL": own_redis.url,
        "POSTGRES_URL": own_postgres.url,
        "ORCHESTRATOR_LEASE_TIMEOUT": "1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    flow = str(tmp_path / "chain.json")

    async with (
        program.running("orchestrator", **environment) as killed,
        program.running("orchestrator", **environment) as kept,
        program.running("worker", **environment) as worker,
    ):
        for process in (killed, kept, worker):
            await process.read_until("process.started")
        for name in NAMES:
            await call("schedule", "add", name, flow, "--every", "1s", "-i", "x={{ tick.time }}")
        await wait_for_executions(all_fired(BEFORE))
        killed.send(signal.SIGKILL)
        await wait_for_executions(all_fired(AFTER))
        for name in NAMES:
            await call("schedule", "pause", name)
        headers = await wait_for_executions(all_completed)
        capsys.readouterr()
        await call("schedule", "list", "--json")

    ticks = Counter(
        (execution.labels["schedule"], execution.labels["runnel.tick"]) for execution in headers
    )
    assert set(ticks.values()) == {1}
    for name in NAMES:
        times = sorted(tick for schedule, tick in ticks if schedule == name)
        assert len(times) >= AFTER
        assert seconds_between(times[0], times[-1]) == len(times) - 1
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(schedule["id"], schedule["missed"], schedule["failed"]) for schedule in listed] == [
        (name, 0, 0) for name in NAMES
    ]
    assert sum(schedule["fired"] for schedule in listed) == len(headers)


async def test_runnel_dev_fires_schedules_of_its_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path)
    monkeypatch.chdir(tmp_path)

    async with program.running("dev", "--port", "0") as process:
        await process.read_until("process.started")
        await call("schedule", "add", "a", "chain.json", "--every", "1s", "--label", "team=x")
        headers = await wait_for_executions(
            lambda executions: bool(executions) and all_completed(executions)
        )

    assert {execution.labels["schedule"] for execution in headers} == {"a"}
    assert headers[0].labels["team"] == "x"


async def call(*arguments: str) -> None:
    """Runs a command in this process, which saves a process start."""
    code = await asyncio.to_thread(run_command, arguments)
    assert code == 0


async def wait_for_executions(
    condition: Callable[[Sequence[ExecutionSummary]], bool],
) -> Sequence[ExecutionSummary]:
    """Waits until the condition holds for the executions, and returns them."""
    async with open_store_session(read_settings()) as session:

        async def read_matching() -> Sequence[ExecutionSummary] | None:
            headers = (await session.client.list_executions(ExecutionFilter(limit=1_000))).items
            return headers if condition(headers) else None

        return await wait_for_value(read_matching, every_s=0.1, deadline_s=DEADLINE_S)


def all_fired(count: int) -> Callable[[Sequence[ExecutionSummary]], bool]:
    def have_fired(headers: Sequence[ExecutionSummary]) -> bool:
        fired = Counter(execution.labels["schedule"] for execution in headers)
        return all(fired[name] >= count for name in NAMES)

    return have_fired


def all_completed(headers: Sequence[ExecutionSummary]) -> bool:
    return all(execution.status is ExecutionState.COMPLETED for execution in headers)


def seconds_between(first: str, last: str) -> float:
    parts = (datetime.fromisoformat(text) for text in (last, first))
    return (next(parts) - next(parts)).total_seconds()
