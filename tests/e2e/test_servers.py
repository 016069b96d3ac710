"""Orchestrators, workers and callers as processes of their own, around one Redis."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.cli.main import run_command
from tests.e2e.program import DEADLINE_S, Program, RunningProgram
from tests.e2e.test_cli_batch import CALL, prepare, runs
from tests.fork_server import Streams
from tests.redis_server import flush_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


class Site:
    """A folder with workflows, and processes that share a server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.program = Program(folder)
        self.log = self.program.log
        self.gate = folder / "gate"
        self.environment = {"REDIS_URL": url, "RUNNEL_ALLOW_PYTHON": "steps:*,batched:*"}

    def process(self, *arguments: str) -> AbstractAsyncContextManager[RunningProgram]:
        return self.program.running(*arguments, **self.environment)

    def gated(self) -> AbstractAsyncContextManager[RunningProgram]:
        """A run whose first node, of the handler python, ends when the gate is there."""
        words = ("-i", f"file={self.log}", "-i", f"gate={self.gate}")
        return self.process("run", "gated.json", *words)

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.program.run, *arguments, **self.environment)


class CommandLine:
    """Commands that ask and leave, called in this process: that saves starting one for each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def ask(self, *arguments: str) -> str:
        code = await asyncio.to_thread(run_command, arguments)
        printed = self._capsys.readouterr()
        assert code in {0, 1}, printed.err
        return printed.out

    async def document(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((await self.ask(*arguments, "--json")).splitlines()[0])
        return found


@pytest.fixture
def desk(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture(scope="module")
def orchestrator_log(
    tmp_path_factory: pytest.TempPathFactory, shared_redis: RedisServer
) -> Iterator[Path]:
    """One orchestrator serves the tests of this file; what it logs is in the file."""
    flush_server(shared_redis)
    folder = tmp_path_factory.mktemp("orchestrator")
    site = Site(folder, shared_redis.url)
    log = folder / "orchestrator.log"
    with Path(os.devnull).open("r+") as nothing, log.open("w") as stderr:
        streams = Streams(nothing.fileno(), nothing.fileno(), stderr.fileno())
        process = site.program.begin("orchestrator", streams=streams, **site.environment)
    yield log
    process.send(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


@pytest.fixture
def site(
    tmp_path: Path,
    shared_redis: RedisServer,
    orchestrator_log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    """With the orchestrator of this file, and no worker."""
    monkeypatch.setenv("REDIS_URL", shared_redis.url)
    return Site(tmp_path, shared_redis.url)


@pytest.fixture
def empty_site(tmp_path: Path, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Site:
    """With neither."""
    monkeypatch.setenv("REDIS_URL", own_redis.url)
    return Site(tmp_path, own_redis.url)


async def test_a_run_is_handed_over_and_all_commands_see_it(
    site: Site, desk: CommandLine, orchestrator_log: Path
) -> None:
    async with site.process("worker"):
        done = await site.run("run", "chain.json", "--input", "x=5")
        failed = await site.run("run", "failing.json")
    listed = await desk.document("list")
    seen = await desk.document("show", "@last")
    told = await desk.ask("history", "@last")
    workflows = await desk.ask("workflows")
    overview = (await desk.ask("top", "--once")).split("\n\n")
    all_of_it = await desk.document("top")

    host = site.environment["REDIS_URL"].rpartition("@")[2]
    lines = done.stderr.splitlines()
    assert lines[0] == f"submitted to redis://***@{host}: workers run it, this command only watches"
    assert any(line.startswith("b: completed in") for line in lines)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"y": 5})
    assert (failed.returncode, listed["status"], seen["status"]) == (1, "FAILED", "FAILED")
    assert "a: failed: ValueError: it broke" in failed.stderr.splitlines()
    assert "ValueError: it broke" in told
    titles = [section.splitlines()[0] for section in overview[1:]]
    assert [each["workflow"] for each in all_of_it["ended"]] == ["failing", "chain"]
    assert "python" in [each["queue"] for each in all_of_it["queues"]]
    assert len(all_of_it["owners"]) == 1
    assert titles == ["under way", "ended", "queues", "workers", "orchestrators"]
    assert {"chain", "failing"} <= {line.split()[0] for line in workflows.splitlines()}
    assert not (site.program.folder / ".runnel").exists()
    # Written after the commit that others have seen.
    await wait_until(lambda: lines[1].split()[1] in ended_in(orchestrator_log), DEADLINE_S)


def ended_in(log: Path) -> list[str]:
    """Whole lines only: the last one may be half written."""
    whole = log.read_text().rpartition("\n")[0]
    logged = [json.loads(line) for line in whole.splitlines()]
    return [line["execution_id"] for line in logged if line["event"] == "execution.finished"]


async def test_a_dead_letter_is_handed_over_to_be_retried(site: Site, desk: CommandLine) -> None:
    async with site.process("worker"):
        failed = (await site.run("run", "failing.json", "--json")).stdout
        name = f"{json.loads(failed)['execution_id']}/a"
        shown = await desk.document("dlq", "show", name)
        document = await desk.document("dlq", "retry", name)
        again = document["execution_id"]
        watched = await site.run("watch", again)
    names = [line.split()[0] for line in (await desk.ask("dlq", "list")).splitlines()]

    assert (shown["error"], shown["workflow"]) == ("ValueError: it broke", "failing")
    assert watched.returncode == 1
    assert f"{again}/a" in names
    assert name not in names


async def test_a_killed_batch_goes_on_and_repeats_nothing(site: Site) -> None:
    numbers = list(range(40))
    prepare(site.program.folder, numbers, nap=0.05)
    call = (*CALL, "--in-flight", "8", "--json")
    async with site.process("worker"), site.process("worker"):
        async with site.process(*call) as first:
            await wait_until(lambda: len(runs(site.program)) >= 8, 3 * DEADLINE_S)
            first.send(signal.SIGKILL)
            await first.ends()
        done = await site.run(*call)

    result = json.loads(done.stdout)
    assert (done.returncode, result["completed"]) == (0, len(numbers))
    assert result["done_before"] >= 8
    assert runs(site.program) == dict.fromkeys(numbers, 1)


async def test_a_worker_that_drains_ends_what_it_has_begun(site: Site) -> None:
    async with site.process("worker") as worker, site.gated() as caller:
        await caller.says("first: started")
        worker.send(signal.SIGTERM)
        stopping = json.loads(await worker.says("shutdown.started"))
        site.gate.touch()
        code, _, _ = await worker.ends()
        async with site.process("worker"):
            outcome, _, _ = await caller.ends()

    assert (code, stopping["holds"], outcome) == (0, 1, 0)
    assert site.log.read_text().split() == ["begun", "ended"]


async def test_a_second_signal_ends_a_worker_at_once_and_another_one_does_its_tasks(
    site: Site,
) -> None:
    async with site.process("worker") as worker, site.gated() as caller:
        await caller.says("first: started")
        worker.send(signal.SIGTERM)
        await worker.says("shutdown.started")
        worker.send(signal.SIGINT)
        code, _, _ = await worker.ends()
        site.gate.touch()
        async with site.process("worker"):
            outcome, _, _ = await caller.ends()

    assert (code, outcome) == (130, 0)
    assert site.log.read_text().split() == ["begun", "begun", "ended"]


async def test_a_worker_takes_tasks_of_its_queues_only(
    empty_site: Site, desk: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_site.gate.touch()
    async with (
        empty_site.process("orchestrator"),
        empty_site.process("worker", "--queues", "python") as worker,
        empty_site.gated() as caller,
    ):
        await caller.says("first: completed")
        listed = await desk.document("workers")
        nobody = await caller.says("no living worker takes tasks")
        # Drained: so it has had every chance to take the last node, which waits in its queue.
        worker.send(signal.SIGTERM)
        await worker.ends()
        seen = await desk.document("show", "@last")
        waiting = await desk.ask("queues")
        gone = await desk.ask("workers")
        async with empty_site.process("worker", "--queues", "output,tasks:input"):
            code, _, _ = await caller.ends()

    assert seen["nodes"]["last"]["state"] == "QUEUED"
    assert nobody.endswith("of the queue 'tasks:output'")
    assert (listed["state"], listed["queues"]) == ("alive", ["tasks:python"])
    assert (listed["pid"], listed["concurrency"]) == (worker.pid, 4)
    assert "output" in waiting
    assert "its tasks wait: no worker is alive" in waiting
    assert gone == "no workers; start one with: runnel worker\n"
    assert code == 0
    assert (await desk.ask("trim")).startswith("deleted: 0 executions, 2 empty queues")
    assert "no queues" in await desk.ask("queues")
    monkeypatch.setenv("RETENTION_COMPLETED_DAYS", "0")
    assert (await desk.ask("trim")).startswith("deleted: 1 execution, 0 empty queues")
    assert await desk.ask("list", "--json") == ""


async def test_who_stops_watching_leaves_the_execution_alone(site: Site) -> None:
    async with site.process("worker"):
        async with site.gated() as caller:
            await caller.says("first: started")
            caller.send(signal.SIGINT)
            code, _, said = await caller.ends()
        async with site.process("watch", "@last") as watcher:
            await watcher.says("first: started")
            site.gate.touch()
            outcome, _, _ = await watcher.ends()

    assert (code, outcome) == (130, 0)
    assert "interrupted; it continues; watch with: runnel watch " in said
    assert site.log.read_text().split() == ["begun", "ended"]


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
    async with site.process("worker", "--app", "shop:handlers") as worker:
        done = await site.run("run", "priced.json", "--json")
        said = json.loads(await worker.says("priced"))

    assert json.loads(done.stdout)["nodes"]["a"]["output"] == 42
    assert (said["node_id"], said["logger"]) == ("a", "runnel.handler.price")


async def test_a_worker_fills_in_secrets_and_its_log_does_not_show_them(
    site: Site, desk: CommandLine, orchestrator_log: Path
) -> None:
    (site.program.folder / "shop.py").write_text(
        "import logging\nfrom runnel import HandlerRegistry\nhandlers = HandlerRegistry()\n"
        "@handlers.handler('login')\n"
        "def login(config, ctx):\n"
        "    ctx.logger.info('key %s', config['key'], extra={'used': config['key']})\n"
        "    logging.getLogger('library').warning('Bearer %s', config['key'])\n"
        "    raise PermissionError('refused: ' + config['key'])\n"
    )
    config = {"key": "{{ secrets.shop_key }}"}
    node = {"id": "a", "handler": "login", "config": config, "retry": {"max_retries": 0}}
    (site.program.folder / "login.json").write_text(json.dumps({"name": "l", "nodes": [node]}))
    site.environment["RUNNEL_SECRET_SHOP_KEY"] = "geheim-0815"
    async with site.process("worker", "--app", "shop:handlers") as worker:
        done = await site.run("run", "login.json", "--json")
        said = [await worker.says("key ***"), await worker.says("Bearer ***")]
        log = "\n".join(worker.lines)
    seen = [await desk.ask(command, "@last") for command in ("show", "history")]

    assert json.loads(done.stdout)["nodes"]["a"]["error"] == "PermissionError: refused: ***"
    assert json.loads(said[0])["used"] == "***"
    assert "geheim" not in "".join([done.stdout, done.stderr, log, *seen])
    assert "geheim" not in orchestrator_log.read_text()


async def test_a_document_alone_enables_nothing_and_the_app_is_the_operators_own(
    site: Site,
) -> None:
    (site.program.folder / "shop.py").write_text(
        "import os\nfrom runnel import HandlerRegistry\nhandlers = HandlerRegistry()\n"
        "def price(of):\n    return of * 2\n"
    )
    nodes = [
        {"id": "own", "handler": "python", "config": {"function": "shop:price", "args": {"of": 4}}},
        {"id": "other", "handler": "python", "config": {"function": "steps:echo"}},
        {"id": "sly", "handler": "python", "config": {"function": "shop:os.getcwd"}},
        {"id": "program", "handler": "shell", "config": {"command": ["ls"]}},
    ]
    flow = {"name": "priced", "on_failure": "continue", "nodes": nodes}
    (site.program.folder / "priced.json").write_text(json.dumps(flow))
    site.environment.pop("RUNNEL_ALLOW_PYTHON")
    async with site.process("worker", "--app", "shop:handlers"):
        done = await site.run("run", "priced.json", "--json")

    found = json.loads(done.stdout)["nodes"]
    assert found["own"]["output"] == 8
    for name, setting in [("other", "PYTHON"), ("sly", "PYTHON"), ("program", "SHELL")]:
        assert found[name]["attempts"] == 1
        assert (
            f"the operator of the worker has to allow it, for example with RUNNEL_ALLOW_{setting}="
            in found[name]["error"]
        )


async def test_an_orchestrator_gives_its_partitions_back_when_it_ends(
    empty_site: Site, desk: CommandLine
) -> None:
    async with empty_site.process("orchestrator") as orchestrator:
        await orchestrator.says('"partition":15')
        orchestrator.send(signal.SIGTERM)
        code, _, log = await orchestrator.ends()

    assert (code, log.count("partition.released")) == (0, 16)
    assert "16 of 16 partitions have no living owner" in await desk.ask("doctor")


async def test_a_caller_is_told_when_nobody_is_there_to_work(empty_site: Site) -> None:
    async with empty_site.process("run", "chain.json") as caller:
        no_orchestrator = await caller.says("no orchestrator is alive")
        no_worker = await caller.says("no worker is alive")
        async with empty_site.process("orchestrator"), empty_site.process("worker"):
            code, _, _ = await caller.ends()

    assert no_orchestrator.endswith("start one with 'runnel orchestrator'")
    assert no_worker.endswith("start one with 'runnel worker'")
    assert code == 0


async def test_signals_and_cancels_wait_for_an_orchestrator(
    empty_site: Site, desk: CommandLine
) -> None:
    async with empty_site.process("run", "tidied.json") as caller:
        await caller.says("execution ")
        signalled = await desk.ask("signal", "@last", "approve")
        cancelled = await desk.ask("cancel", "@last", "--force")
        stuck = await desk.ask("list", "--stuck")
        async with empty_site.process("orchestrator"):
            code, _, _ = await caller.ends()

    assert "no process runs it now; continue with: runnel orchestrator" in signalled
    assert "as soon as a process runs it; continue with: runnel orchestrator" in cancelled
    assert "no process runs it" in stuck
    assert code == 1


def test_resuming_is_not_needed_on_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_HOST", "nowhere.example")

    assert run_command(["resume"]) == 2
    assert (
        "executions on servers need no resume: orchestrators continue them"
        in capsys.readouterr().err
    )
