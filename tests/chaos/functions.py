"""The functions of the mixed workflows. Their results depend on their inputs."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from runnel.authoring.context import Context

NOTES = "RUNNEL_CHAOS_NOTES"
LINGER_S = 0.3
SHORT_S = 0.1


async def add(ctx: Context) -> int:
    """Returns one more than the sum of all parent outputs, including the lists of maps."""
    return 1 + sum(_numbers(list(ctx.inputs.values())))


async def double(value: int) -> int:
    return 2 * value


async def linger(ctx: Context) -> int:
    """Runs long enough to be interrupted by a fault."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            await ctx.wait_cancelled()
    return 1


async def fail_twice(ctx: Context) -> int:
    """Fails twice. A file counts failures, because the report of a failure may be lost."""
    counter_file = Path(os.environ[NOTES]) / ctx.idempotency_key.replace("/", "_")
    failures = len(counter_file.read_bytes()) if counter_file.exists() else 0
    if failures < 2:
        counter_file.write_bytes(b"x" * (failures + 1))
        raise ConnectionError("not yet")
    return 1


async def note_run(ctx: Context) -> int:
    """Notes that the code of this node ran, which no rollback of a server undoes."""
    with (Path(os.environ[NOTES]) / "runs").open("a") as runs:
        runs.write(f"{ctx.idempotency_key}\n")
    with suppress(TimeoutError):
        async with asyncio.timeout(SHORT_S):
            await ctx.wait_cancelled()
    return 1


def die() -> None:
    os._exit(9)


async def fail() -> None:
    raise ConnectionError("never")


async def refuse() -> None:
    raise ValueError("bad data")


def _numbers(values: list[Any]) -> list[int]:
    """Returns all integers in nested lists and ignores other values, such as a sleep's output."""
    numbers: list[int] = []
    for value in values:
        if isinstance(value, list):
            numbers += _numbers(value)
        elif isinstance(value, int):
            numbers.append(value)
    return numbers
