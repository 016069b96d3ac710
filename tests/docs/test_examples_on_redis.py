"""Examples print the same when workers of a Redis server run them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runnel.app.private_servers.redis import RedisServer
from tests.docs.console import commands_of, console
from tests.docs.page_commands import PageCommands
from tests.docs.test_examples import FOLDER, session_of
from tests.e2e.program import DEADLINE_S, clean_environment
from tests.waiting import POLL_INTERVAL_S

# Together they use most features. children.py is first because it lists all executions.
NAMES = (
    "children.py",
    "approval.py",
    "documents.py",
    "rerun.py",
    "saga.py",
    "shell.yaml",
)


@contextmanager
def workers(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Runs an orchestrator and a worker that can import the examples."""
    path = os.pathsep.join([str(folder / "examples"), os.environ.get("PYTHONPATH", "")])
    log = folder / "dev.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "runnel", "dev", "--port", "0"],
            cwd=folder,
            env=clean_environment(**environment, PYTHONPATH=path),
            stderr=errors,
        ) as process,
    ):
        try:
            _wait_until_started(process, log)
            yield
        finally:
            process.send_signal(signal.SIGINT)


def _wait_until_started(process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + DEADLINE_S
    while "process.started" not in log.read_text():
        if time.monotonic() > end or process.poll() is not None:
            raise AssertionError(f"the process did not start; it printed:\n{log.read_text()}")
        try:
            process.wait(POLL_INTERVAL_S)
        except subprocess.TimeoutExpired:
            continue


@pytest.mark.slow
@pytest.mark.timeout(240)  # many commands, one after the other
def test_examples_print_the_same_on_redis(
    tmp_path: Path, program_forks: PageCommands, own_redis: RedisServer
) -> None:
    shutil.copytree(FOLDER, tmp_path / "examples")
    allowed = {"RUNNEL_ALLOW_PYTHON": "all", "RUNNEL_ALLOW_SHELL": "ls,grep"}

    with (
        workers(tmp_path, {"REDIS_URL": own_redis.url, **allowed}),
        console(tmp_path, program_forks, REDIS_URL=own_redis.url) as terminal,
    ):
        for name in NAMES:
            for command in commands_of(session_of(name)):
                terminal.follow(command)

    assert not (tmp_path / ".runnel").exists()
