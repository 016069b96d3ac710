"""A private server never outlives the process that started it, under any user."""

import asyncio
import os
import pwd
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runnel.app.private_servers.binaries import UNPRIVILEGED_USER
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.conftest import MissingPart
from tests.servers import AnyServer, require_binary
from tests.waiting import wait_until

SCRIPT = Path(__file__).with_name("server_process.py")
SERVERS: dict[str, type[AnyServer]] = {"redis": RedisServer, "postgres": PostgresServer}

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.mark.parametrize("state", ["running", "paused"])
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_server_and_its_folder_are_removed_when_its_starter_is_killed(
    kind: str, state: str, missing_part: MissingPart
) -> None:
    require_binary(SERVERS[kind], missing_part)
    async with start_process(kind, state) as process:
        pids = [int(pid) for pid in (await read_line(process)).split()]
        folder = Path(await read_line(process))
        assert is_alive(pids[0])

        process.kill()

        await wait_until(lambda: not any(is_alive(pid) for pid in pids))
        await wait_until(lambda: not folder.exists())


@only_root
def test_under_root_postgres_runs_as_an_unprivileged_user(own_postgres: PostgresServer) -> None:
    assert (own_postgres.folder / "data").owner() == UNPRIVILEGED_USER
    assert Path(f"/proc/{own_postgres.pid}").owner() == UNPRIVILEGED_USER


@only_root
@pytest.mark.parametrize("kind", SERVERS)
async def test_an_unprivileged_user_can_start_servers(
    kind: str, tmp_path: Path, missing_part: MissingPart
) -> None:
    require_binary(SERVERS[kind], missing_part)
    try:
        import_runnel = [sys.executable, "-c", "import runnel"]
        subprocess.run(import_runnel, check=True, cwd="/", user=UNPRIVILEGED_USER)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{UNPRIVILEGED_USER} can't run this Python: {error}")

    async with start_process(kind, "running", user=UNPRIVILEGED_USER) as process:
        pids = [int(pid) for pid in (await read_line(process)).split()]
        folder = Path(await read_line(process))

        assert folder.owner() == UNPRIVILEGED_USER
        assert is_alive(pids[0])


@asynccontextmanager
async def start_process(
    kind: str, state: str, *, user: str | None = None
) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(SCRIPT), kind, state),
        stdin=PIPE,
        stdout=PIPE,
        cwd="/",
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        # The user has no home directory to store templates in.
        env=os.environ if user is None else {**os.environ, "HOME": "/nonexistent"},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def read_line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(30):
        return (await process.stdout.readline()).decode().strip()


def is_alive(pid: int) -> bool:
    """Tells whether the process runs. A zombie has ended and only waits for its parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return not status.parent.parent.joinpath("self").exists()
