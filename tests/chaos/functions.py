"""The functions of the mixed workflows: what they return depends on what they are given."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from runnel.authoring.context import Context

NOTES = "RUNNEL_CHAOS_NOTES"
LINGER_S = 0.3


async def add(ctx: Context) -> int:
    """One more than all that its parents gave, lists of a map included."""
    return 1 + sum(_numbers(list(ctx.inputs.values())))


async def double(value: int) -> int:
    return 2 * value


async def linger(ctx: Context) -> int:
    """Long enough to be at work when something happens."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            await ctx.wait_cancelled()
    return 1


async def fail_twice(ctx: Context) -> int:
    """Failures are counted in a file: an attempt whose report was lost has failed all the same."""
    note = Path(os.environ[NOTES]) / ctx.idempotency_key.replace("/", "_")
    failures = len(note.read_bytes()) if note.exists() else 0
    if failures < 2:
        note.write_bytes(b"x" * (failures + 1))
        raise ConnectionError("not yet")
    return 1


async def fail() -> None:
    raise ConnectionError("never")


async def refuse() -> None:
    raise ValueError("bad data")


def _numbers(values: list[Any]) -> list[int]:
    """Of what else there is (a sleep's output), nothing."""
    found: list[int] = []
    for value in values:
        if isinstance(value, list):
            found += _numbers(value)
        elif isinstance(value, int):
            found.append(value)
    return found
