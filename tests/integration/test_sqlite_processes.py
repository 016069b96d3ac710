"""Two processes share a data directory; one of them is killed."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.errors import LeaseHeldError
from runnel.testing.clock import FakeClock, FakeIds

SCRIPT = Path(__file__).with_name("sqlite_process.py")


async def test_a_message_from_another_process_arrives_by_its_wakeup(tmp_path: Path) -> None:
    async with started("own", tmp_path, "first") as first:
        owned = await line(first)
        async with started("send", tmp_path, "hello") as second:
            await second.wait()
        got = await line(first)

    assert (owned, got) == ("owns 0", "got hello")


async def test_two_processes_get_separate_home_partitions(tmp_path: Path) -> None:
    async with started("own", tmp_path, "a") as first, started("own", tmp_path, "b") as second:
        homes = {await line(first), await line(second)}

    assert homes == {"owns 0", "owns 1"}


async def test_a_killed_process_loses_its_lease_at_once(tmp_path: Path) -> None:
    async with started("own", tmp_path, "first") as first:
        await line(first)
        backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds("second"))
        held = await backend.store.observe(0)
        with pytest.raises(LeaseHeldError, match="owned by first"):
            await backend.store.acquire(0, "second", expected=held)

        first.kill()
        await first.wait()

        seen = await backend.store.observe(0)
        lease = await backend.store.acquire(0, "second")
        await backend.close()

    assert held is not None
    assert (held.owner, seen, lease.epoch) == ("first", None, held.epoch + 1)


async def test_a_forked_child_does_not_keep_the_lease_of_its_killed_parent(
    tmp_path: Path,
) -> None:
    async with started("fork", tmp_path, "first") as first:
        await line(first)
        child = int((await line(first)).removeprefix("forked "))
        try:
            first.kill()
            await first.wait()
            backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds("second"))
            seen = await backend.store.observe(0)
            await backend.close()
        finally:
            os.kill(child, signal.SIGKILL)

    assert seen is None


@asynccontextmanager
async def started(role: str, data_dir: Path, name: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), role, str(data_dir), name, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().strip()
