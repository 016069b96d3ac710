"""Orchestrators, workers and callers as processes of their own, around one Redis."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from runnel.runtime.servers import RedisServer
from tests.e2e.program import Program, Running
from tests.redis_server import empty

pytestmark = pytest.mark.e2e


class Site:
    """A folder with workflows, and processes that share the server."""

    def __init__(self, program: Program, url: str) -> None:
        self.program = program
        self.environment = {"REDIS_URL": url, "RUNNEL_ENV": "test", "RUNNEL_LOG_LEVEL": "info"}

    def process(self, *arguments: str) -> Any:
        return self.program.running(*arguments, **self.environment)

    def run(self, *arguments: str) -> Any:
        return self.program.run(*arguments, **self.environment)

    def documents(self, *arguments: str) -> list[dict[str, Any]]:
        return self.program.documents(*arguments, **self.environment)

    @asynccontextmanager
    async def staffed(self, *, queues: str | None = None) -> AsyncIterator[list[Running]]:
        """An orchestrator and a worker, both ready."""
        chosen = [] if queues is None else ["--queues", queues]
        async with AsyncExitStack() as stack:
            running = [
                await stack.enter_async_context(self.process("orchestrator")),
                await stack.enter_async_context(self.process("worker", *chosen)),
            ]
            for each in running:
                await each.says("process.started")
            yield running


@pytest.fixture
def site(tmp_path: Path, shared_redis: RedisServer) -> Site:
    empty(shared_redis)
    return Site(Program(tmp_path), shared_redis.url)


async def test_a_run_is_handed_over_and_watched(site: Site) -> None:
    async with site.staffed() as (orchestrator, _):
        done = await asyncio.to_thread(site.run, "run", "chain.json", "--input", "x=5")
        ended = json.loads(await orchestrator.says("execution.finished"))

    host = site.environment["REDIS_URL"].rpartition("@")[2]
    lines = done.stderr.splitlines()
    assert lines[0] == f"submitted to redis://***@{host}: workers run it, this command only watches"
    assert "b: completed in 0.0 s" in lines
    assert (done.returncode, json.loads(done.stdout)) == (0, {"y": 5})
    assert ended["execution_id"] == lines[1].split()[1]
    assert not (site.program.folder / ".runnel").exists()


async def test_the_other_commands_work_the_same(site: Site) -> None:
    async with site.staffed():
        failed = await asyncio.to_thread(site.run, "run", "failing.json")
        (listed,) = await asyncio.to_thread(site.documents, "list")
        (seen,) = await asyncio.to_thread(site.documents, "show", "@last")
        watched = await asyncio.to_thread(site.run, "watch", "@last")
        told = await asyncio.to_thread(site.run, "history", "@last")

    assert failed.returncode == watched.returncode == 1
    assert listed["status"] == seen["status"] == "FAILED"
    assert "ValueError: it broke" in failed.stderr
    assert "ValueError: it broke" in told.stdout


async def test_a_worker_that_drains_ends_what_it_has_begun(site: Site) -> None:
    log, gate = site.program.log, site.program.folder / "gate"
    arguments = ("run", "gated.json", "-i", f"file={log}", "-i", f"gate={gate}")
    async with site.staffed() as (_, worker), site.process(*arguments) as caller:
        await caller.says("first: started")
        worker.send(signal.SIGTERM)
        stopping = json.loads(await worker.says("shutdown.started"))
        gate.touch()
        code, _, _ = await worker.ends()
        async with site.process("worker"):
            outcome, _, _ = await caller.ends()

    assert (code, stopping["holds"], outcome) == (0, 1, 0)
    assert log.read_text().split() == ["begun", "ended"]


async def test_a_second_signal_ends_a_worker_at_once_and_another_one_does_its_tasks(
    site: Site,
) -> None:
    log, gate = site.program.log, site.program.folder / "gate"
    arguments = ("run", "gated.json", "-i", f"file={log}", "-i", f"gate={gate}")
    async with site.staffed() as (_, worker), site.process(*arguments) as caller:
        await caller.says("first: started")
        worker.send(signal.SIGTERM)
        await worker.says("shutdown.started")
        worker.send(signal.SIGINT)
        code, _, _ = await worker.ends()
        gate.touch()
        async with site.process("worker"):
            outcome, _, _ = await caller.ends()

    assert (code, outcome) == (130, 0)
    assert log.read_text().split() == ["begun", "begun", "ended"]


async def test_a_worker_takes_tasks_of_its_queues_only(site: Site) -> None:
    log, gate = site.program.log, site.program.folder / "gate"
    gate.touch()
    arguments = ("run", "gated.json", "-i", f"file={log}", "-i", f"gate={gate}")
    async with site.staffed(queues="python"), site.process(*arguments) as caller:
        await caller.says("first: completed")
        # A second execution: its first node is done by the same worker, after the first one's
        # last node was there to be taken.
        async with site.process(*arguments) as other:
            await other.says("first: completed")
        (seen,) = await asyncio.to_thread(site.documents, "list", "--limit", "1")
        async with site.process("worker", "--queues", "output,tasks:input"):
            code, _, _ = await caller.ends()

    assert (seen["status"], code) == ("RUNNING", 0)


async def test_an_orchestrator_gives_its_partitions_back_when_it_ends(site: Site) -> None:
    async with site.staffed() as (orchestrator, _):
        await orchestrator.says("partition.acquired")
        orchestrator.send(signal.SIGTERM)
        code, _, log = await orchestrator.ends()
        judged = await asyncio.to_thread(site.run, "doctor")

    released = [line for line in log.splitlines() if "partition.released" in line]
    assert (code, len(released)) == (0, 16)
    assert "16 of 16 partitions have no living owner" in judged.stdout


async def test_a_caller_is_told_when_nobody_is_there_to_work(site: Site) -> None:
    async with site.process("run", "chain.json") as caller:
        no_orchestrator = await caller.says("no orchestrator is alive")
        no_worker = await caller.says("no worker is alive")
        async with site.staffed():
            code, _, _ = await caller.ends()

    assert no_orchestrator.endswith("start one with 'runnel orchestrator'")
    assert no_worker.endswith("start one with 'runnel worker'")
    assert code == 0


async def test_who_stops_watching_leaves_the_execution_alone(site: Site) -> None:
    log, gate = site.program.log, site.program.folder / "gate"
    arguments = ("run", "gated.json", "-i", f"file={log}", "-i", f"gate={gate}")
    async with site.staffed():
        async with site.process(*arguments) as caller:
            await caller.says("first: started")
            caller.send(signal.SIGINT)
            code, _, said = await caller.ends()
        gate.touch()
        watched = await asyncio.to_thread(site.run, "watch", "@last")

    assert code == 130
    assert "interrupted; it goes on; watch with: runnel watch " in said
    assert watched.returncode == 0
    assert log.read_text().split() == ["begun", "ended"]


async def test_signals_and_cancels_wait_for_an_orchestrator(site: Site) -> None:
    async with site.process("run", "tidied.json") as caller:
        await caller.says("execution ")
        signalled = await asyncio.to_thread(site.run, "signal", "@last", "approve")
        cancelled = await asyncio.to_thread(site.run, "cancel", "@last", "--force")
        stuck = await asyncio.to_thread(site.run, "list", "--stuck")
        async with site.staffed():
            code, _, _ = await caller.ends()

    assert "no process runs it now; go on with: runnel orchestrator" in signalled.stdout
    assert "as soon as a process runs it; go on with: runnel orchestrator" in cancelled.stdout
    assert "no process runs it" in stuck.stdout
    assert code in {0, 1}


def test_resuming_is_not_needed_on_servers(site: Site) -> None:
    done = site.run("resume")

    assert done.returncode == 2
    assert "orchestrators take up what is unfinished by themselves" in done.stderr


async def test_own_handlers_come_with_the_app(site: Site) -> None:
    (site.program.folder / "shop.py").write_text(
        "from runnel import HandlerRegistry\n"
        "handlers = HandlerRegistry()\n"
        "@handlers.handler('price')\n"
        "def price(config, ctx):\n"
        "    ctx.logger.info('priced')\n"
        "    return config['of'] * 2\n"
    )
    flow = {"name": "priced", "nodes": [{"id": "a", "handler": "price", "config": {"of": 21}}]}
    (site.program.folder / "priced.json").write_text(json.dumps(flow))
    async with (
        site.process("orchestrator"),
        site.process("worker", "--app", "shop:handlers") as worker,
    ):
        done = await asyncio.to_thread(site.run, "run", "priced.json", "--json")
        said = json.loads(await worker.says("priced"))

    assert json.loads(done.stdout)["nodes"]["a"]["output"] == 42
    assert (said["node_id"], said["logger"]) == ("a", "runnel.handler.price")
