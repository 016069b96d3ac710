"""Functions that the process tests run in child processes."""

import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from runnel.authoring.context import Context
from runnel.engine.worker.child_process import SOFT_TIMEOUT_SIGNAL
from runnel.errors import Skip, SoftTimeoutError


class PickyError(Exception):
    """An exception that pickle can't restore, because its constructor needs two arguments."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def square(n: int) -> int:
    return n * n


def pid() -> int:
    return os.getpid()


async def async_pid() -> int:
    return os.getpid()


def where() -> dict[str, Any]:
    return {"cwd": str(Path.cwd()), "path": sys.path}


def inputs(ctx: Context) -> Any:
    ctx.metrics.gauge("depth", 2.5)
    ctx.logger.warning("from the child")
    return {"parents": dict(ctx.inputs), "input": ctx.execution_input, "key": ctx.idempotency_key}


def measure_oddly(ctx: Context) -> str:
    ctx.observe("ratio", math.nan)
    ctx.observe("price", Decimal("1.5"), year=2026)  # type: ignore[arg-type]  # users pass anything
    ctx.observe("size", 1, file="a\udcff")
    ctx.metrics.count("words", "five")  # type: ignore[arg-type]
    return "done"


def handler(config: Any, ctx: Context) -> Any:
    return {"config": config, "node": ctx.node_id}


def picky() -> None:
    raise PickyError("very", "picky")


def skip() -> None:
    raise Skip("nothing to do")


def not_json() -> object:
    return object()


def leave() -> None:
    os._exit(7)


def wait_for_file(pid_file: str, awaited: str) -> str:
    """Writes its pid to the first file, then waits until the other file exists."""
    Path(pid_file).write_text(str(os.getpid()))
    never = threading.Event()
    while not Path(awaited).exists():
        never.wait(0.01)
    return "done"


def terminate_fork_and_program() -> list[int]:
    """Sends SIGTERM to a fork and to a program; returns their exit codes."""
    program = subprocess.Popen(
        [sys.executable, "-c", "import threading; print(flush=True); threading.Event().wait(600)"],
        stdout=subprocess.PIPE,
    )
    if program.stdout is not None:
        program.stdout.readline()
    fork = multiprocessing.get_context("fork").Process(target=threading.Event().wait, args=(600,))
    fork.start()
    program.terminate()
    fork.terminate()
    fork.join(10)
    return [program.wait(10), fork.exitcode or 0]


def spin(file: str) -> None:
    """Writes its pid to the file, then runs for ever without waiting."""
    Path(file).write_text(str(os.getpid()))
    while True:
        pass


def spin_without_switching_threads(file: str) -> None:
    """Runs like `spin`, and lets no other thread of the process run."""
    sys.setswitchinterval(1e6)
    spin(file)


def spin_with_grandchild(file: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file).write_text(f"{os.getpid()} {child.pid}")
    threading.Event().wait()


def soft() -> str:
    try:
        while True:
            time.monotonic()
    except SoftTimeoutError as error:
        return str(error)


def soft_by_itself() -> str:
    """Runs like `soft`, but sends itself the signal."""
    try:
        os.kill(os.getpid(), SOFT_TIMEOUT_SIGNAL)
        return soft()
    except SoftTimeoutError as error:
        return str(error)
