"""Schedules around real servers: orchestrators that are killed miss no tick and repeat none."""

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


async def test_ticks_are_fired_once_though_an_orchestrator_is_killed(
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
            await process.says("process.started")
        for name in NAMES:
            await call("schedule", "add", name, flow, "--every", "1s", "-i", "x={{ tick.time }}")
        await until(each_fired(BEFORE))
        killed.send(signal.SIGKILL)
        await until(each_fired(AFTER))
        for name in NAMES:
            await call("schedule", "pause", name)
        headers = await until(all_completed)
        capsys.readouterr()
        await call("schedule", "list", "--json")

    ticks = Counter((each.labels["schedule"], each.labels["runnel.tick"]) for each in headers)
    assert set(ticks.values()) == {1}
    for name in NAMES:
        moments = sorted(tick for schedule, tick in ticks if schedule == name)
        assert len(moments) >= AFTER
        assert seconds_between(moments[0], moments[-1]) == len(moments) - 1
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["id"], each["missed"], each["failed"]) for each in listed] == [
        (name, 0, 0) for name in NAMES
    ]
    assert sum(each["fired"] for each in listed) == len(headers)


async def test_runnel_dev_fires_schedules_of_its_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path)
    monkeypatch.chdir(tmp_path)

    async with program.running("dev", "--port", "0") as process:
        await process.says("process.started")
        await call("schedule", "add", "a", "chain.json", "--every", "1s", "--label", "team=x")
        headers = await until(lambda found: bool(found) and all_completed(found))

    assert {each.labels["schedule"] for each in headers} == {"a"}
    assert headers[0].labels["team"] == "x"


async def call(*arguments: str) -> None:
    """In this process: that saves starting one for each."""
    code = await asyncio.to_thread(run_command, arguments)
    assert code == 0


async def until(wanted: Callable[[Sequence[ExecutionSummary]], bool]) -> Sequence[ExecutionSummary]:
    """All executions, once they are as they are wanted."""
    async with open_store_session(read_settings()) as look:

        async def found() -> Sequence[ExecutionSummary] | None:
            headers = (await look.client.list_executions(ExecutionFilter(limit=1_000))).items
            return headers if wanted(headers) else None

        return await wait_for_value(found, every_s=0.1, deadline_s=DEADLINE_S)


def each_fired(count: int) -> Callable[[Sequence[ExecutionSummary]], bool]:
    def are_there(headers: Sequence[ExecutionSummary]) -> bool:
        found = Counter(each.labels["schedule"] for each in headers)
        return all(found[name] >= count for name in NAMES)

    return are_there


def all_completed(headers: Sequence[ExecutionSummary]) -> bool:
    return all(each.status is ExecutionState.COMPLETED for each in headers)


def seconds_between(first: str, last: str) -> float:
    parts = (datetime.fromisoformat(text) for text in (last, first))
    return (next(parts) - next(parts)).total_seconds()
