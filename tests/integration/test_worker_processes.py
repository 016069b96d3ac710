"""`process` mode with real processes: results, hard timeouts, and the end with the parent."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel.authoring.calls import FunctionCall, Mode
from runnel.authoring.context import Context
from runnel.core.commands import TaskCompleted, TaskFailed, TaskLost, TaskSkipped
from runnel.core.retry import SUSPECT_LOSSES
from runnel.core.values import make_blob_reference
from runnel.engine.clock import RealClock
from runnel.engine.worker.child_process import ChildProcess, ChildProcessPool, NoteMessage, make_job
from runnel.errors import Skip
from tests.integration import child_functions
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_for_value, wait_until

HERE = "tests.integration.child_functions"


@pytest.fixture
def stage() -> WorkerHarness:
    return WorkerHarness(RealClock())


def make_process_task(
    stage: WorkerHarness, name: str, args: dict[str, Any] | None = None, **fields: Any
) -> Any:
    config = {"function": f"{HERE}:{name}", "args": args or {}, "mode": "process"}
    return stage.task("python", config, **fields)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def is_gone(pid: int) -> Callable[[], bool]:
    return lambda: not is_alive(pid)


async def read_pids(file: Path) -> list[int]:
    await wait_until(lambda: file.exists() and bool(file.read_text()))
    return [int(word) for word in file.read_text().split()]


async def test_a_function_runs_in_a_process_that_is_reused(stage: WorkerHarness) -> None:
    async with stage.working(concurrency=1):
        await stage.issue(
            make_process_task(stage, "pid"),
            make_process_task(stage, "pid"),
            make_process_task(stage, "async_pid"),
        )
        results = await stage.results(3)

    pids = {result.output.decode() for result in results if isinstance(result, TaskCompleted)}
    assert len(pids) == 1
    assert os.getpid() not in pids
    assert not is_alive(pids.pop())


async def test_the_child_has_the_working_directory_and_the_path_of_its_parent(
    stage: WorkerHarness,
) -> None:
    assert await stage.output(make_process_task(stage, "where")) == {
        "cwd": str(Path.cwd()),
        "path": sys.path,
    }


async def test_the_context_works_in_a_process(
    stage: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.backend.blobs.put("k", b'["from a blob"]')
    task = make_process_task(
        stage,
        "inputs",
        inputs={"a": 1, "b": make_blob_reference("k", 15)},
        execution_input={"given": True},
    )

    report = await stage.run(task)

    assert isinstance(report, TaskCompleted)
    assert [(line.level, line.text) for line in report.logs] == [("warning", "from the child")]
    assert report.output.decode() == {
        "parents": {"a": 1, "b": ["from a blob"]},
        "input": {"given": True},
        "key": "x1/node",
    }
    [metric] = stage.telemetry.named("handler.metric")
    assert (metric["metric"], metric["value"]) == ("depth", 2.5)
    [record] = [entry for entry in caplog.records if entry.getMessage() == "from the child"]
    assert (record.levelno, record.__dict__["node_id"]) == (logging.WARNING, "node")


async def test_a_registered_handler_may_run_in_a_process(stage: WorkerHarness) -> None:
    stage.handlers.register("crunch", child_functions.handler, mode="process")

    output = await stage.output(
        stage.task("crunch", {"x": "{{ input.n }}"}, execution_input={"n": 1})
    )

    assert output == {"config": {"x": 1}, "node": "node"}


async def test_an_exception_that_can_not_be_pickled_is_reported(
    stage: WorkerHarness,
) -> None:
    failed = await stage.error(make_process_task(stage, "picky"))

    assert str(failed.error) == "PickyError: very picky"
    assert "child_functions.py" in (failed.error.traceback or "")
    assert "runnel/engine" not in (failed.error.traceback or "")


async def test_code_in_a_process_may_skip_its_node(stage: WorkerHarness) -> None:
    async with stage.working():
        await stage.issue(make_process_task(stage, "skip"))
        [skipped] = await stage.results()

    assert isinstance(skipped, TaskSkipped)
    assert skipped.reason == "nothing to do"


def exit_as_a_generator() -> None:
    raise GeneratorExit("by the code")


async def exit_as_a_generator_async() -> None:
    raise GeneratorExit("by the code")


def log_and_raise_undecodable_text(ctx: Context) -> None:
    ctx.logger.warning(os.fsdecode(b"log \xff"))
    raise ValueError(os.fsdecode(b"error \xff"))


def skip_with_undecodable_text() -> None:
    raise Skip(os.fsdecode(b"skip \xff"))


@pytest.mark.parametrize("function", [exit_as_a_generator, exit_as_a_generator_async])
async def test_a_generator_exit_in_a_process_fails_its_task(
    stage: WorkerHarness, function: Callable[..., Any]
) -> None:
    config = {"function": f"{__name__}:{function.__name__}", "mode": "process"}

    failed = await stage.error(stage.task("python", config))

    assert str(failed.error) == "GeneratorExit: by the code"


async def test_undecodable_text_from_a_process_is_escaped(
    stage: WorkerHarness, caplog: pytest.LogCaptureFixture
) -> None:
    escaped, skipped = (
        stage.task("python", {"function": f"{__name__}:{function.__name__}", "mode": "process"})
        for function in (log_and_raise_undecodable_text, skip_with_undecodable_text)
    )
    async with stage.working(concurrency=1):
        await stage.issue(escaped, skipped)
        first, second = await stage.results(2)

    assert isinstance(first, TaskFailed)
    assert str(first.error) == r"ValueError: error \udcff"
    assert isinstance(second, TaskSkipped)
    assert second.reason == r"skip \udcff"
    assert r"log \udcff" in [record.getMessage() for record in caplog.records]


async def test_a_result_of_a_process_that_is_not_json_is_refused(
    stage: WorkerHarness,
) -> None:
    failed = await stage.error(make_process_task(stage, "not_json"))

    assert "it holds a builtins.object" in failed.error.message


async def test_a_process_that_exits_gives_a_retryable_error(
    stage: WorkerHarness,
) -> None:
    async with stage.working(concurrency=1):
        await stage.issue(
            make_process_task(stage, "leave"), make_process_task(stage, "square", {"n": 5})
        )
        died, completed = await stage.results(2)

    assert died.error.type == "ProcessDiedError"  # type: ignore[union-attr]  # a failure
    assert "exit code 7" in died.error.message  # type: ignore[union-attr]  # a failure
    assert died.error.retryable is True  # type: ignore[union-attr]  # a failure
    assert completed.output.decode() == 25  # type: ignore[union-attr]  # in a new process


def make_suspect(stage: WorkerHarness, name: str, args: dict[str, Any] | None = None) -> Any:
    config = {"function": f"{HERE}:{name}", "args": args or {}}
    return stage.task("python", config, losses=SUSPECT_LOSSES)


async def test_a_suspect_dies_alone_in_a_child_process_and_its_worker_continues(
    stage: WorkerHarness,
) -> None:
    async with stage.working(concurrency=1):
        await stage.issue(make_suspect(stage, "leave"), make_suspect(stage, "pid"))
        [completed] = await stage.results(1)

    [died] = [report for report in stage.reports if isinstance(report, TaskLost)]
    assert (died.was_started, died.was_alone) == (True, True)
    assert died.reason == "the process that ran the task ended with exit code 7"
    assert completed.output.decode() != os.getpid()  # type: ignore[union-attr]  # in a child


async def test_a_suspect_in_a_child_process_is_not_blamed_for_the_death_of_its_worker(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    args = {"pid_file": str(tmp_path / "pid"), "awaited": str(tmp_path / "awaited")}
    async with stage.working():
        await stage.issue(make_suspect(stage, "wait_for_file", args))
        await read_pids(tmp_path / "pid")
        [record] = await stage.backend.tasks.workers()
        await stage.backend.store.lose_worker_tasks(record)
        reports = await stage.read_reports()
        stage.stop_now.set()

    [lost] = [report for report in reports if isinstance(report, TaskLost)]
    assert (lost.was_started, lost.was_alone) == (False, False)


async def test_a_child_process_that_dies_while_its_worker_stops_is_not_a_crash(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    args = {"pid_file": str(tmp_path / "pid"), "awaited": str(tmp_path / "awaited")}
    async with stage.working():
        await stage.issue(make_suspect(stage, "wait_for_file", args))
        [child] = await read_pids(tmp_path / "pid")
        stage.stop.set()
        await wait_until_draining(stage)
        os.kill(child, signal.SIGKILL)

    [lost] = [report for report in await stage.read_reports() if isinstance(report, TaskLost)]
    assert (lost.was_started, lost.was_alone) == (False, False)


async def wait_until_draining(stage: WorkerHarness) -> None:
    async def find_draining() -> bool | None:
        [record] = await stage.backend.tasks.workers()
        return True if record.about is not None and record.about.is_draining else None

    await wait_for_value(find_draining, every_s=0.01, deadline_s=10)


async def test_a_child_process_continues_after_a_signal_to_all_processes_of_a_service(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    args = {"pid_file": str(tmp_path / "pid"), "awaited": str(tmp_path / "awaited")}
    async with stage.working():
        await stage.issue(make_process_task(stage, "wait_for_file", args))
        [child] = await read_pids(tmp_path / "pid")
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(child, number)
        stage.stop.set()
        (tmp_path / "awaited").touch()
        [completed] = await stage.results()

    assert completed.output.decode() == "done"  # type: ignore[union-attr]  # completed


async def test_processes_of_user_code_do_not_ignore_signals(stage: WorkerHarness) -> None:
    task = make_process_task(stage, "terminate_fork_and_program")

    assert await stage.output(task) == [-signal.SIGTERM, -signal.SIGTERM]


async def test_a_suspect_that_no_other_process_can_import_runs_in_its_worker(
    stage: WorkerHarness,
) -> None:
    stage.handlers.register("nested", lambda _config, _context: os.getpid())

    async with stage.working(concurrency=1):
        await stage.issue(stage.task("nested", {}, losses=SUSPECT_LOSSES))
        [completed] = await stage.results(1)

    assert completed.output.decode() == os.getpid()  # type: ignore[union-attr]  # completed


async def test_a_process_that_died_while_idle_is_replaced(stage: WorkerHarness) -> None:
    processes, children = ChildProcessPool(), list[ChildProcess]()
    job = make_job(
        FunctionCall(function=child_functions.pid, mode=Mode.PROCESS), stage.task("crunch")
    )

    async def ignore(_note: NoteMessage) -> None:
        return

    async def run_job() -> bytes:
        done = await processes.run(job, ignore, children.append)
        return bytes(done.output)

    first = await run_job()
    os.kill(int(first), signal.SIGKILL)
    await children[0].wait()
    second, third = await run_job(), await run_job()
    await processes.close()

    assert first != second
    assert second == third
    assert children[1] is children[2]


async def test_a_timeout_kills_the_process_and_its_children(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    task = make_process_task(stage, "spin_with_grandchild", {"file": str(file)}, timeout_s=2.0)

    async with stage.working(concurrency=1):
        await stage.issue(task, make_process_task(stage, "square", {"n": 3}))
        child, grandchild = await read_pids(file)
        failed, completed = await stage.results(2)
        await wait_until(is_gone(child))
        await wait_until(is_gone(grandchild))

    assert failed.error.type == "TaskTimeoutError"  # type: ignore[union-attr]  # a failure
    assert completed.output.decode() == 9  # type: ignore[union-attr]  # the slot was free again


async def test_the_process_of_a_dropped_task_is_killed(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    task = make_process_task(stage, "spin", {"file": str(file)})

    async with stage.working() as worker:
        await stage.issue(task)
        [child] = await read_pids(file)
        await stage.drop(task.token)
        await wait_until(is_gone(child))
        await wait_until(lambda: worker.holds == 0)

    await stage.read_reports()
    assert stage.ended() == []


async def test_the_soft_timeout_interrupts_code_that_never_waits(stage: WorkerHarness) -> None:
    output = await stage.output(
        make_process_task(stage, "soft", soft_timeout_s=1.0, timeout_s=30.0)
    )

    assert "soft timeout of 1 s" in output


PARENT = """
    import asyncio, sys
    from runnel.engine.clock import RealClock
    from tests.unit.engine.worker.worker_harness import WorkerHarness

    async def main():
        stage = WorkerHarness(RealClock())
        config = {"function": sys.argv[1], "args": {"file": sys.argv[2]}, "mode": "process"}
        async with stage.working():
            await stage.issue(stage.task("python", config))
            await asyncio.Event().wait()

    asyncio.run(main())
"""


@pytest.mark.parametrize("function", ["spin", "spin_without_switching_threads"])
async def test_a_child_process_ends_when_its_parent_is_killed(
    tmp_path: Path, function: str
) -> None:
    file = tmp_path / "pid"
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), f"{HERE}:{function}", str(file)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    [child] = await read_pids(file)
    was_alive = is_alive(child)

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(timeout=10)
    await wait_until(is_gone(child))

    assert was_alive


SCRIPT = """
    import asyncio
    from runnel.engine.clock import RealClock
    from tests.unit.engine.worker.worker_harness import WorkerHarness

    def crunch(config, ctx):
        return [config["n"] + 1, __name__]

    async def main():
        stage = WorkerHarness(RealClock())
        stage.handlers.register("crunch", crunch, mode="process")
        print(await stage.output(stage.task("crunch", {"n": 1})))

    if __name__ == "__main__":
        asyncio.run(main())
"""


def test_a_function_of_the_users_own_script_runs_in_a_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))

    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.stdout == "[2, '__runnel_main__']\n", done.stderr
    assert done.stderr == ""
