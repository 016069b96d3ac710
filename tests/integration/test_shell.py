"""`shell` with programs that fail, hang, write too much, leave children or lose their worker."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runnel.app.private_servers.guardian import list_children
from runnel.core.commands import TaskFailed
from runnel.core.retry import RetryPolicy
from runnel.engine.clock import RealClock
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import ProgramPermissions
from tests.unit.engine.worker.worker_harness import WorkerHarness
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def stage() -> WorkerHarness:
    return WorkerHarness(RealClock())


async def run_shell(stage: WorkerHarness, *command: str, **config: Any) -> Any:
    return await stage.output(stage.task("shell", {"command": list(command), **config}))


async def fail_shell(stage: WorkerHarness, *command: str, **config: Any) -> TaskFailed:
    return await stage.error(stage.task("shell", {"command": list(command), **config}))


def is_alive(pid: int) -> bool:
    """Tells whether the process runs. A zombie has ended and only waits for its parent."""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


def read_pids(path: Path) -> list[int]:
    return [int(word) for word in path.read_text().split()] if path.exists() else []


async def test_a_program_gets_its_arguments_unchanged(stage: WorkerHarness) -> None:
    output = await run_shell(stage, "printf", "%s|", "a b", "$HOME", "; ls", "*")

    assert output == {"exit_code": 0, "stdout": "a b|$HOME|; ls|*|", "stderr": "", "is_cut": False}


async def test_a_command_text_is_run_by_a_shell_on_request(stage: WorkerHarness) -> None:
    task = stage.task("shell", {"command": "echo $((1 + 1)) | tr 2 3", "shell": True})

    assert (await stage.output(task))["stdout"] == "3\n"


async def test_a_program_gets_stdin_environment_and_working_directory(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    output = await run_shell(
        stage,
        "sh",
        "-c",
        "cat; echo $NAME; pwd",
        stdin="hi ",
        env={"NAME": "Ada"},
        cwd=str(tmp_path),
    )

    assert output["stdout"] == f"hi Ada\n{tmp_path}\n"


async def test_a_program_gets_only_safe_environment_variables(
    stage: WorkerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNEL_SECRET_X", "geheim")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")

    output = await run_shell(stage, "env", parse="lines", env={"MINE": 1})

    names = {line.partition("=")[0] for line in output["stdout"]}
    assert {"PATH", "LC_ALL", "MINE"} <= names
    kept = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "MINE"}
    set_by_shell = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name for name in names if not name.startswith("LC_")} <= kept | set_by_shell


async def test_output_may_be_read_as_json_or_lines(stage: WorkerHarness) -> None:
    async with stage.working():
        await stage.issue(
            stage.task("shell", {"command": ["echo", '{"a": 1}'], "parse": "json"}, node="a")
        )
        [first] = await stage.results()
        await stage.issue(
            stage.task("shell", {"command": ["echo", "half {"], "parse": "json"}, node="b")
        )
        [_, second] = await stage.results(2)

    assert first.output.decode()["stdout"] == {"a": 1}  # type: ignore[union-attr]
    assert isinstance(second, TaskFailed)
    assert "output that is not JSON" in second.error.message


async def test_output_over_the_limit_is_cut_and_marked(stage: WorkerHarness) -> None:
    output = await run_shell(
        stage, "sh", "-c", "yes | head -c 3000000; echo err >&2", max_output_bytes=1_000
    )

    assert (len(output["stdout"]), output["is_cut"], output["stderr"]) == (1_000, True, "err\n")


async def test_undecodable_bytes_are_replaced(stage: WorkerHarness) -> None:
    assert (await run_shell(stage, "printf", r"a\377b"))["stdout"] == "a\ufffdb"


@pytest.mark.parametrize(
    ("script", "config", "ending", "retried"),
    [
        ("echo bad luck >&2; exit 3", {}, "exit code 3; it wrote: bad luck", True),
        ("exit 3", {"no_retry_exit_codes": [3]}, "exit code 3", False),
        ("exit 127", {}, "exit code 127", False),
        ("kill -SEGV $$", {}, "signal SIGSEGV", True),
        ("exit 0", {"ok_exit_codes": [1]}, "exit code 0", True),
    ],
)
async def test_the_exit_code_decides_whether_a_task_is_retried(
    stage: WorkerHarness, script: str, config: dict[str, Any], ending: str, retried: bool
) -> None:
    failed = await fail_shell(stage, "sh", "-c", script, **config)

    assert failed.error.message == f"'sh' ended with {ending}"
    assert RetryPolicy().is_retryable(failed.error) is retried


async def test_the_config_may_accept_an_exit_code(stage: WorkerHarness) -> None:
    assert (await run_shell(stage, "sh", "-c", "exit 1", ok_exit_codes=[0, 1]))["exit_code"] == 1


async def test_a_file_that_can_not_be_executed_fails_without_a_retry(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    (tmp_path / "no program").write_text("")

    failed = await fail_shell(stage, str(tmp_path / "no program"))

    assert "ended with exit code 126; it wrote: " in failed.error.message
    assert failed.error.retryable is False


@pytest.mark.parametrize("config", [{}, {"env": {"A": "x" * 200_000}}, {"stdin": "short"}])
async def test_the_error_for_a_too_long_argument_suggests_stdin(
    stage: WorkerHarness, config: dict[str, Any]
) -> None:
    failed = await fail_shell(stage, "echo", "x" * 200_000, **config)

    assert "pass long texts through stdin" in failed.error.message
    assert failed.error.retryable is False


async def test_a_timeout_kills_the_whole_process_group(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    file = tmp_path / "pids"
    script = f"sleep 1000 & echo $$ $! > {file}; wait"

    failed = await fail_shell(stage, "sh", "-c", script, timeout_seconds=1.0)

    assert failed.error.type == "TaskTimeoutError"
    assert len(read_pids(file)) == 2
    await wait_until(lambda: not any(map(is_alive, read_pids(file))))


@pytest.mark.parametrize("trap", ["", "trap '' TERM; "])
async def test_a_cancelled_node_kills_the_whole_process_group(
    stage: WorkerHarness, tmp_path: Path, trap: str
) -> None:
    """This includes a group that ignores SIGTERM."""
    file = tmp_path / "pids"
    script = f"{trap}sleep 1000 & echo $$ $! > {file}; wait; wait"
    task = stage.task("shell", {"command": ["sh", "-c", script]})

    async with stage.working() as worker:
        await stage.issue(task)
        await wait_until(lambda: len(read_pids(file)) == 2)
        await stage.drop(task.token)
        await wait_until(lambda: not worker.holds)

    await wait_until(lambda: not any(map(is_alive, read_pids(file))))
    assert not stage.ended()


async def test_children_that_a_program_leaves_running_are_killed(
    stage: WorkerHarness, tmp_path: Path
) -> None:
    file = tmp_path / "pids"

    output = await run_shell(stage, "sh", "-c", f"sleep 1000 & echo $! > {file}; echo done")

    assert output["stdout"] == "done\n"
    await wait_until(lambda: not any(map(is_alive, read_pids(file))))


async def test_a_program_does_not_outlive_a_killed_worker(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"trap '' TERM HUP; sleep 1000 & echo $$ $! > {file}; wait"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.shell_worker", script], cwd=ROOT
    )
    try:
        await wait_until(lambda: len(read_pids(file)) == 2)
        programs = read_pids(file)
        were_alive = [is_alive(pid) for pid in programs]
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        await asyncio.to_thread(worker.wait)

    await wait_until(lambda: not any(map(is_alive, programs)))
    assert were_alive == [True, True]


async def test_a_killed_guardian_is_replaced(stage: WorkerHarness) -> None:
    async with stage.working():
        await stage.issue(stage.task("shell", {"command": ["true"]}, node="first"))
        await stage.results()
        [guardian] = [pid for pid in list_children(os.getpid()) if is_guardian(pid)]
        os.kill(guardian, signal.SIGKILL)
        await wait_until(lambda: not is_alive(guardian))
        await stage.issue(stage.task("shell", {"command": ["true"]}, node="second"))
        results = await stage.results(2)
        guardians = [pid for pid in list_children(os.getpid()) if is_guardian(pid)]

    assert [type(result).__name__ for result in results] == ["TaskCompleted"] * 2
    assert len(guardians) == 1
    assert guardians != [guardian]


async def test_the_guardian_ends_with_its_worker(stage: WorkerHarness) -> None:
    await run_shell(stage, "true")

    assert not [pid for pid in list_children(os.getpid()) if is_guardian(pid)]


def is_guardian(pid: int) -> bool:
    command = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return "shell_guardian.py" in command.stdout


def make_limited_harness(*programs: str) -> WorkerHarness:
    stage = WorkerHarness(RealClock())
    stage.handlers = create_builtin_registry(
        HandlerEnvironment(programs=ProgramPermissions(programs))
    )
    return stage


async def test_only_programs_that_the_operator_allows_run() -> None:
    stage = make_limited_harness("echo", "/bin/sh")
    configs: list[dict[str, Any]] = [
        {"command": ["echo", "hi"]},
        {"command": "echo hi", "shell": True},
        {"command": ["cat", "/etc/passwd"]},
        {"command": ["sh", "-c", "cat"]},
        {"command": ["echo", "x"], "env": {"PATH": "/tmp"}},
        {"command": ["echo", "x"], "env": {"LD_PRELOAD": "/tmp/evil.so"}},
    ]
    tasks = [stage.task("shell", config, node=f"n{n}") for n, config in enumerate(configs)]

    async with stage.working():
        await stage.issue(*tasks)
        results = await stage.results(len(tasks))

    by_node = {str(result.token.node_id): result for result in results}
    refused = {node for node, result in by_node.items() if isinstance(result, TaskFailed)}
    assert refused == {"n2", "n3", "n4", "n5"}
    first = by_node["n2"]
    assert isinstance(first, TaskFailed)
    assert first.error.message == (
        "this worker may not use the program 'cat': the operator of the worker has to allow it, "
        "for example with RUNNEL_ALLOW_SHELL=cat"
    )
    assert first.error.retryable is False
