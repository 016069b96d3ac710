"""A `runnel.run` that is timed out or cancelled logs nothing and leaves nothing open."""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer

DEADLINE_S = 90


async def run_program(*arguments: str, environment: Mapping[str, str]) -> tuple[int | None, str]:
    """Returns the exit code and stderr of the program in development mode."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RUNNEL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-X", "dev", "-W", "error", "-m", "tests.integration.cancelled_runs"),
        *arguments,
        env={**kept, **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, stderr = await process.communicate()
    return process.returncode, stderr.decode()


async def test_a_run_on_a_data_directory_that_timed_out_leaves_nothing(tmp_path: Path) -> None:
    environment = {"RUNNEL_DATA_DIR": str(tmp_path)}

    assert await run_program("timeouts", environment=environment) == (0, "")


async def test_a_program_that_ends_during_its_runs_leaves_nothing(tmp_path: Path) -> None:
    environment = {"RUNNEL_DATA_DIR": str(tmp_path)}

    assert await run_program("ends", "1", environment=environment) == (0, "")


@pytest.mark.parametrize("has_archive", [False, True])
async def test_a_run_on_servers_that_timed_out_leaves_nothing(
    shared_redis: RedisServer, shared_postgres: PostgresServer, *, has_archive: bool
) -> None:
    environment = {"REDIS_URL": shared_redis.url}
    if has_archive:
        environment["POSTGRES_URL"] = shared_postgres.url

    assert await run_program("timeouts", environment=environment) == (0, "")
