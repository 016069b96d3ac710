"""Orchestrators, workers and callers in separate processes that share one Redis."""

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
from tests.e2e.test_cli_batch import CALL, count_runs, prepare
from tests.fork_server import Streams
from tests.redis_server import flush_server
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


class Deployment:
    """A folder with workflows, and processes that share one Redis."""

    def __init__(self, folder: Path, url: str) -> None:
        self.program = Program(folder)
        self.log = self.program.log
        self.gate = folder / "gate"
        self.environment = {"REDIS_URL": url, "RUNNEL_ALLOW_PYTHON": "steps:*,batched:*"}

    def run_process(self, *arguments: str) -> AbstractAsyncContextManager[RunningProgram]:
        return self.program.running(*arguments, **self.environment)

    def run_gated(self) -> AbstractAsyncContextManager[RunningProgram]:
        """Starts a run whose first node waits until the gate file exists."""
        words = ("-i", f"file={self.log}", "-i", f"gate={self.gate}")
        return self.run_process("run", "gated.json", *words)

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self.program.run, *arguments, **self.environment)


class CommandLine:
    """Runs short commands in this process, which saves a process start for each."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def run(self, *arguments: str) -> str:
        code = await asyncio.to_thread(run_command, arguments)
        printed = self._capsys.readouterr()
        assert code in {0, 1}, printed.err
        return printed.out

    async def document(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(
            (await self.run(*arguments, "--json")).splitlines()[0]
        )
        return document


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)


@pytest.fixture(scope="module")
def orchestrator_log(
    tmp_path_factory: pytest.TempPathFactory, shared_redis: RedisServer
) -> Iterator[Path]:
    """Runs one orchestrator for all tests of this module; yields the path of its log."""
    flush_server(shared_redis)
    folder = tmp_path_factory.mktemp("orchestrator")
    deployment = Deployment(folder, shared_redis.url)
    log = folder / "orchestrator.log"
    with Path(os.devnull).open("r+") as devnull, log.open("w") as stderr:
        streams = Streams(devnull.fileno(), devnull.fileno(), stderr.fileno())
        process = deployment.program.begin(
            "orchestrator", streams=streams, **deployment.environment
        )
    yield log
    process.send(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


@pytest.fixture
def deployment(
    tmp_path: Path,
    shared_redis: RedisServer,
    orchestrator_log: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """Returns a deployment with the shared orchestrator and without a worker."""
    monkeypatch.setenv("REDIS_URL", shared_redis.url)
    return Deployment(tmp_path, shared_redis.url)


@pytest.fixture
def empty_deployment(
    tmp_path: Path, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Deployment:
    """Returns a deployment without orchestrator and worker."""
    monkeypatch.setenv("REDIS_URL", own_redis.url)
    return Deployment(tmp_path, own_redis.url)


async def test_a_run_is_submitted_to_servers_and_all_commands_show_it(
    deployment: Deployment, cli: CommandLine, orchestrator_log: Path
) -> None:
    async with deployment.run_process("worker"):
        done = await deployment.run("run", "chain.json", "--input", "x=5")
        failed = await deployment.run("run", "failing.json")
    listed = await cli.document("list")
    seen = await cli.document("show", "@last")
    history = await cli.run("history", "@last")
    workflows = await cli.run("workflows")
    overview = (await cli.run("top", "--once")).split("\n\n")
    overview_document = await cli.document("top")

    host = deployment.environment["REDIS_URL"].rpartition("@")[2]
    lines = done.stderr.splitlines()
    assert lines[0] == f"submitted to redis://***@{host}: workers run it, this command only watches"
    assert any(line.startswith("b: completed in") for line in lines)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"y": 5})
    assert (failed.returncode, listed["status"], seen["status"]) == (1, "FAILED", "FAILED")
    assert "a: failed: ValueError: it broke" in failed.stderr.splitlines()
    assert "ValueError: it broke" in history
    titles = [section.splitlines()[0] for section in overview[1:]]
    assert [execution["workflow"] for execution in overview_document["ended"]] == [
        "failing",
        "chain",
    ]
    assert "python" in [queue["queue"] for queue in overview_document["queues"]]
    assert len(overview_document["owners"]) == 1
    assert titles == ["under way", "ended", "queues", "workers", "orchestrators"]
    assert {"chain", "failing"} <= {line.split()[0] for line in workflows.splitlines()}
    assert not (deployment.program.folder / ".runnel").exists()
    # The orchestrator writes its log after the commit, so the line may be late.
    await wait_until(lambda: lines[1].split()[1] in list_finished(orchestrator_log), DEADLINE_S)


def list_finished(log: Path) -> list[str]:
    """Returns the ids of finished executions; ignores a last line that is incomplete."""
    complete_lines = log.read_text().rpartition("\n")[0]
    logged = [json.loads(line) for line in complete_lines.splitlines()]
    return [line["execution_id"] for line in logged if line["event"] == "execution.finished"]


async def test_a_worker_retries_a_dead_letter(deployment: Deployment, cli: CommandLine) -> None:
    async with deployment.run_process("worker"):
        failed = (await deployment.run("run", "failing.json", "--json")).stdout
        name = f"{json.loads(failed)['execution_id']}/a"
        shown = await cli.document("dlq", "show", name)
        document = await cli.document("dlq", "retry", name)
        again = document["execution_id"]
        watched = await deployment.run("watch", again)
    names = [line.split()[0] for line in (await cli.run("dlq", "list")).splitlines()]

    assert (shown["error"], shown["workflow"]) == ("ValueError: it broke", "failing")
    assert watched.returncode == 1
    assert f"{again}/a" in names
    assert name not in names


async def test_a_killed_batch_continues_and_repeats_no_document(deployment: Deployment) -> None:
    numbers = list(range(40))
    prepare(deployment.program.folder, numbers, nap=0.05)
    call = (*CALL, "--in-flight", "8", "--json")
    async with deployment.run_process("worker"), deployment.run_process("worker"):
        async with deployment.run_process(*call) as first:
            await wait_until(lambda: len(count_runs(deployment.program)) >= 8, 3 * DEADLINE_S)
            first.send(signal.SIGKILL)
            await first.wait()
        done = await deployment.run(*call)

    result = json.loads(done.stdout)
    assert (done.returncode, result["completed"]) == (0, len(numbers))
    assert result["done_before"] >= 8
    assert count_runs(deployment.program) == dict.fromkeys(numbers, 1)


async def test_a_draining_worker_finishes_its_running_tasks(deployment: Deployment) -> None:
    async with deployment.run_process("worker") as worker, deployment.run_gated() as caller:
        await caller.read_until("first: started")
        worker.send(signal.SIGTERM)
        stopping = json.loads(await worker.read_until("shutdown.started"))
        deployment.gate.touch()
        code, _, _ = await worker.wait()
        async with deployment.run_process("worker"):
            outcome, _, _ = await caller.wait()

    assert (code, stopping["holds"], outcome) == (0, 1, 0)
    assert deployment.log.read_text().split() == ["begun", "ended"]


async def test_a_second_signal_ends_a_worker_at_once_and_another_worker_runs_its_tasks(
    deployment: Deployment,
) -> None:
    async with deployment.run_process("worker") as worker, deployment.run_gated() as caller:
        await caller.read_until("first: started")
        worker.send(signal.SIGTERM)
        await worker.read_until("shutdown.started")
        worker.send(signal.SIGINT)
        code, _, _ = await worker.wait()
        deployment.gate.touch()
        async with deployment.run_process("worker"):
            outcome, _, _ = await caller.wait()

    assert (code, outcome) == (130, 0)
    assert deployment.log.read_text().split() == ["begun", "begun", "ended"]


async def test_a_worker_takes_only_tasks_of_its_queues(
    empty_deployment: Deployment, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_deployment.gate.touch()
    async with (
        empty_deployment.run_process("orchestrator"),
        empty_deployment.run_process("worker", "--queues", "python") as worker,
        empty_deployment.run_gated() as caller,
    ):
        await caller.read_until("first: completed")
        listed = await cli.document("workers")
        warning = await caller.read_until("no living worker takes tasks")
        # The worker ends before the check, so it can no longer take the last node.
        worker.send(signal.SIGTERM)
        await worker.wait()
        seen = await cli.document("show", "@last")
        waiting = await cli.run("queues")
        listed_after_drain = await cli.run("workers")
        async with empty_deployment.run_process("worker", "--queues", "output,tasks:input"):
            code, _, _ = await caller.wait()

    assert seen["nodes"]["last"]["status"] == "QUEUED"
    assert warning.endswith("of the queue 'tasks:output'")
    assert (listed["status"], listed["queues"]) == ("alive", ["tasks:python"])
    assert (listed["pid"], listed["concurrency"]) == (worker.pid, 4)
    assert "output" in waiting
    assert "the tasks of the queue wait: no worker is alive" in waiting
    assert listed_after_drain == "no workers; start one with: runnel worker\n"
    assert code == 0
    assert (await cli.run("trim")).startswith("deleted: 0 executions, 2 empty queues")
    assert "no queues" in await cli.run("queues")
    monkeypatch.setenv("RETENTION_COMPLETED_DAYS", "0")
    assert (await cli.run("trim")).startswith("deleted: 1 execution, 0 empty queues")
    assert await cli.run("list", "--json") == ""


async def test_an_interrupted_watcher_does_not_stop_the_execution(deployment: Deployment) -> None:
    async with deployment.run_process("worker"):
        async with deployment.run_gated() as caller:
            await caller.read_until("first: started")
            caller.send(signal.SIGINT)
            code, _, stderr = await caller.wait()
        async with deployment.run_process("watch", "@last") as watcher:
            await watcher.read_until("first: started")
            deployment.gate.touch()
            outcome, _, _ = await watcher.wait()

    assert (code, outcome) == (130, 0)
    assert "interrupted; the execution continues; watch it with: runnel watch " in stderr
    assert deployment.log.read_text().split() == ["begun", "ended"]


async def test_a_worker_runs_the_handlers_of_its_app(deployment: Deployment) -> None:
    (deployment.program.folder / "shop.py").write_text(
        "from runnel import HandlerRegistry\n"
        "handlers = HandlerRegistry()\n"
        "@handlers.handler('price')\n"
        "def price(config, ctx):\n"
        "    ctx.logger.info('priced')\n"
        "    return config['of'] * 2\n"
    )
    flow = {"name": "priced", "nodes": [{"id": "a", "handler": "price", "config": {"of": 21}}]}
    (deployment.program.folder / "priced.json").write_text(json.dumps(flow))
    async with deployment.run_process("worker", "--app", "shop:handlers") as worker:
        done = await deployment.run("run", "priced.json", "--json")
        logged = json.loads(await worker.read_until("priced"))

    assert json.loads(done.stdout)["nodes"]["a"]["output"] == 42
    assert (logged["node_id"], logged["logger"]) == ("a", "runnel.handler.price")


async def test_a_worker_fills_in_secrets_and_its_log_does_not_show_them(
    deployment: Deployment, cli: CommandLine, orchestrator_log: Path
) -> None:
    (deployment.program.folder / "shop.py").write_text(
        "import logging\nfrom runnel import HandlerRegistry\nhandlers = HandlerRegistry()\n"
        "@handlers.handler('login')\n"
        "def login(config, ctx):\n"
        "    ctx.logger.info('key %s', config['key'], extra={'used': config['key']})\n"
        "    logging.getLogger('library').warning('Bearer %s', config['key'])\n"
        "    raise PermissionError('refused: ' + config['key'])\n"
    )
    config = {"key": "{{ secrets.shop_key }}"}
    node = {"id": "a", "handler": "login", "config": config, "retry": {"max_retries": 0}}
    (deployment.program.folder / "login.json").write_text(
        json.dumps({"name": "l", "nodes": [node]})
    )
    deployment.environment["RUNNEL_SECRET_SHOP_KEY"] = "geheim-0815"
    async with deployment.run_process("worker", "--app", "shop:handlers") as worker:
        done = await deployment.run("run", "login.json", "--json")
        logged = [await worker.read_until("key ***"), await worker.read_until("Bearer ***")]
        log = "\n".join(worker.lines)
    seen = [await cli.run(command, "@last") for command in ("show", "history")]

    assert json.loads(done.stdout)["nodes"]["a"]["error"] == "PermissionError: refused: ***"
    assert json.loads(logged[0])["used"] == "***"
    assert "geheim" not in "".join([done.stdout, done.stderr, log, *seen])
    assert "geheim" not in orchestrator_log.read_text()


async def test_a_document_may_call_only_functions_of_the_app(
    deployment: Deployment,
) -> None:
    (deployment.program.folder / "shop.py").write_text(
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
    (deployment.program.folder / "priced.json").write_text(json.dumps(flow))
    deployment.environment.pop("RUNNEL_ALLOW_PYTHON")
    deployment.environment["UNSERVED_TIMEOUT"] = "1"
    async with deployment.run_process("worker", "--app", "shop:handlers"):
        done = await deployment.run("run", "priced.json", "--json")

    nodes_shown = json.loads(done.stdout)["nodes"]
    assert nodes_shown["own"]["output"] == 8
    for name, settings in [
        ("other", "the option --app steps, or with RUNNEL_ALLOW_PYTHON=steps:echo"),
        ("sly", "RUNNEL_ALLOW_PYTHON=shop:os.getcwd"),
        ("program", "RUNNEL_ALLOW_SHELL=ls"),
    ]:
        advice = f"the operator of the worker has to allow it, for example with {settings}"
        assert advice in nodes_shown[name]["error"]


async def test_a_task_that_one_worker_cannot_import_runs_on_a_worker_that_can(
    deployment: Deployment,
) -> None:
    folder = deployment.program.folder
    task = "from runnel import task, workflow\n@task(retries=0)\ndef {0}() -> str:\n"
    task += "    return '{0}'\n@workflow\ndef {0}_flow():\n    return {0}()\n"
    for name in ("bread", "fruit"):
        (folder / f"{name}.py").write_text(task.format(name))
    deployment.environment.pop("RUNNEL_ALLOW_PYTHON")
    async with (
        deployment.run_process("worker", "--app", "bread") as wrong,
        deployment.run_process("run", "fruit.py") as run,
    ):
        handed_back = json.loads(await wrong.read_until("task.handed_back"))
        async with deployment.run_process("worker", "--app", "bread", "--app", "fruit"):
            ended = await run.wait()
            other = await deployment.run("run", "bread.py")

    assert "for example with the option --app fruit, or with" in handed_back["problem"]
    assert (ended[0], ended[1].strip(), other.stdout.strip()) == (0, '"fruit"', '"bread"')


async def test_a_handler_that_no_child_process_can_run_is_blamed_for_the_deaths_of_its_workers(
    empty_deployment: Deployment,
) -> None:
    folder = empty_deployment.program.folder
    (folder / "nested.py").write_text(
        "import os\nfrom time import sleep\nfrom runnel import HandlerRegistry\n"
        "handlers = HandlerRegistry()\n"
        "handlers.register('poison', lambda config, ctx: os._exit(9))\n"
        "handlers.register('innocent', lambda config, ctx: sleep(1))\n"
    )
    nodes = [{"id": "poison", "handler": "poison"}]
    nodes += [{"id": f"innocent{number}", "handler": "innocent"} for number in range(3)]
    document = {"name": "nested", "on_failure": "continue", "nodes": nodes}
    (folder / "nested.json").write_text(json.dumps(document))
    empty_deployment.environment |= {
        "WORKER_HEARTBEAT_INTERVAL": "0.1",
        "WORKER_HEARTBEAT_TIMEOUT": "0.5",
    }
    deaths = 0
    async with (
        empty_deployment.run_process("orchestrator"),
        empty_deployment.run_process("run", "nested.json", "--json") as caller,
        asyncio.timeout(4 * DEADLINE_S),
    ):
        while caller.code is None:
            async with empty_deployment.run_process("worker", "--app", "nested:handlers") as worker:
                await wait_until(lambda: (worker.code, caller.code) != (None, None), DEADLINE_S)
                deaths += worker.code is not None
        _, out, _ = await caller.wait()

    shown = json.loads(out.splitlines()[-1])["nodes"]
    assert shown["poison"]["error"].endswith(
        "4 processes died while they held this task and no other task"
    )
    assert {shown[f"innocent{number}"]["status"] for number in range(3)} == {"COMPLETED"}
    assert deaths <= 6


async def test_an_orchestrator_releases_its_partitions_when_it_ends(
    empty_deployment: Deployment, cli: CommandLine
) -> None:
    async with empty_deployment.run_process("orchestrator") as orchestrator:
        await orchestrator.read_until('"partition":15')
        orchestrator.send(signal.SIGTERM)
        code, _, log = await orchestrator.wait()

    assert (code, log.count("partition.released")) == (0, 16)
    assert "16 of 16 partitions have no living owner" in await cli.run("doctor")


async def test_a_caller_is_warned_if_no_orchestrator_or_worker_is_alive(
    empty_deployment: Deployment,
) -> None:
    async with empty_deployment.run_process("run", "chain.json") as caller:
        no_orchestrator = await caller.read_until("no orchestrator is alive")
        no_worker = await caller.read_until("no worker is alive")
        async with (
            empty_deployment.run_process("orchestrator"),
            empty_deployment.run_process("worker"),
        ):
            code, _, _ = await caller.wait()

    assert no_orchestrator.endswith("start one with 'runnel orchestrator'")
    assert no_worker.endswith("start one with 'runnel worker'")
    assert code == 0


async def test_signals_and_cancels_wait_for_an_orchestrator(
    empty_deployment: Deployment, cli: CommandLine
) -> None:
    async with empty_deployment.run_process("run", "tidied.json") as caller:
        await caller.read_until("execution ")
        signalled = await cli.run("signal", "@last", "approve")
        cancelled = await cli.run("cancel", "@last", "--force")
        stuck = await cli.run("list", "--stuck")
        async with empty_deployment.run_process("orchestrator"):
            code, _, _ = await caller.wait()

    assert "no process runs this execution now; continue with: runnel orchestrator" in signalled
    assert "as soon as a process runs it; continue with: runnel orchestrator" in cancelled
    assert "no process runs it" in stuck
    assert code == 1


def test_resume_is_refused_on_servers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_HOST", "nowhere.example")

    assert run_command(["resume"]) == 2
    assert (
        "'runnel resume' is only for a data directory: orchestrators continue executions on a "
        in capsys.readouterr().err
    )


NESTED = """
import runnel
from runnel import task, workflow

@task
async def wait_on_loop(level: int) -> int:
    return 1 if level == 0 else 1 + await runnel.run(on_loop, level - 1)

@task
def wait_in_thread(level: int) -> int:
    return 1 if level == 0 else 1 + in_thread.run(level - 1)

@task(mode="process")
def wait_in_process(level: int) -> int:
    return 1 if level == 0 else 1 + in_process.run(level - 1)

@workflow
def on_loop(level: int):
    return wait_on_loop(level)

@workflow
def in_thread(level: int):
    return wait_in_thread(level)

@workflow
def in_process(level: int):
    return wait_in_process(level)

@workflow
def all_modes(four: list[int], two: list[int]):
    return [on_loop.map(four), in_thread.map(four), in_process.map(two)]
"""


async def test_tasks_that_run_executions_give_their_slots_to_the_tasks_of_these_executions(
    deployment: Deployment,
) -> None:
    (deployment.program.folder / "nested.py").write_text(NESTED)
    async with deployment.run_process("worker", "--app", "nested", "--concurrency", "2"):
        done = await deployment.run(
            "run", "nested.py:all_modes", "-i", "four:=[2,2,2,2]", "-i", "two:=[2,2]"
        )

    assert json.loads(done.stdout) == [[3] * 4, [3] * 4, [3] * 2]
