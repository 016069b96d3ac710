"""`runnel.Engine` on Redis: a client, and with `apps` also an orchestrator and a worker."""

import asyncio
from pathlib import Path

import pytest

import runnel
from runnel.app.private_servers.redis import RedisServer
from runnel.core.states import ExecutionState
from runnel.errors import EngineEndedError, NoServerError
from tests.integration import engine_flows as flows
from tests.waiting import wait_for_value, wait_until

APPS = [flows.__name__]


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "POSTGRES_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNNEL_ENV", "test")


async def test_an_engine_with_apps_runs_their_tasks(own_redis: RedisServer, tmp_path: Path) -> None:
    async with runnel.Engine(redis_url=own_redis.url, apps=APPS) as engine:
        page = await engine.run(flows.page, "a/b")
        execution = await engine.submit(flows.approved, str(tmp_path / "notes"))
        await engine.signal(execution, "approve", {"by": "ada"})
        result = await engine.result(execution)
        number = await runnel.run(flows.doubled, 4)

    assert page == flows.Page("a/b", 2)
    assert result == {"by": "ada", "said": "after"}
    assert number == 8


async def test_an_engine_without_apps_is_a_client_of_the_workers(own_redis: RedisServer) -> None:
    async with runnel.Engine(redis_url=own_redis.url) as client:
        execution = await client.submit(flows.doubled, 3)
        before = (await client.get(execution)).status
        async with runnel.Engine(redis_url=own_redis.url, apps=APPS):
            number = await client.result(execution)

    assert before is ExecutionState.PENDING
    assert number == 6


async def test_another_engine_takes_over_from_one_that_ended(
    own_redis: RedisServer, tmp_path: Path
) -> None:
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    async with runnel.Engine(redis_url=own_redis.url, apps=APPS) as living:

        async def serve() -> None:
            async with runnel.Engine(redis_url=own_redis.url, apps=APPS):
                await asyncio.Event().wait()

        other = asyncio.create_task(serve())
        execution = await living.submit(flows.held, str(notes), str(gate))
        await wait_until(notes.exists)
        other.cancel()
        await asyncio.wait([other])
        gate.touch()
        await living.result(execution)

    assert notes.read_text().splitlines()[-1].startswith("ended")


async def test_an_engine_whose_worker_was_drained_raises(own_redis: RedisServer) -> None:
    async def find_worker(engine: runnel.Engine) -> str | None:
        workers = await engine.operations.workers()
        return workers[0].worker if workers else None

    async def use_engine() -> None:
        async with runnel.Engine(redis_url=own_redis.url, apps=APPS) as engine:
            worker = await wait_for_value(lambda: find_worker(engine), every_s=0.05, deadline_s=10)
            execution = await engine.submit(flows.waiting)
            await engine.operations.drain(worker)
            await engine.result(execution)

    with pytest.raises(EngineEndedError, match="its worker was drained"):
        await use_engine()


async def test_a_server_that_can_not_be_reached_is_named() -> None:
    with pytest.raises(NoServerError, match=r"127\.0\.0\.1:1"):
        async with runnel.Engine(redis_url="redis://127.0.0.1:1", apps=APPS):
            pass
