"""`runnel dev --with-servers` starts private servers that end with the command."""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.conftest import MissingPart
from tests.e2e.program import Program
from tests.servers import require_binary
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).parents[2] / "examples"


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def accepts_connections(url: str) -> bool:
    parts = urlsplit(url)
    with suppress(ConnectionRefusedError), socket.create_connection((parts.hostname, parts.port)):
        return True
    return False


async def test_the_demo_runs_on_private_servers_that_end_with_the_command(
    tmp_path: Path, missing_part: MissingPart
) -> None:
    require_binary(RedisServer, missing_part)
    require_binary(PostgresServer, missing_part)
    program = Program(tmp_path)
    demo = (EXAMPLES / "demo_steps.py").read_text()
    (tmp_path / "demo_steps.py").write_text(demo)
    async with program.running("dev", "--with-servers", "--port", "0") as dev:
        printed = (await dev.read_line()).removeprefix("export ")
        servers_set = dict(word.split("=", 1) for word in printed.split())
        await dev.read_until("process.started")
        servers = list_children(dev.pid)
        done = await asyncio.to_thread(
            program.run, "run", str(EXAMPLES / "demo.yaml"), **servers_set
        )
        were_answering = [accepts_connections(url) for url in servers_set.values()]
        dev.send(signal.SIGINT)
        code, _, _ = await dev.wait()

    assert list(servers_set) == ["REDIS_URL", "POSTGRES_URL"]
    assert (done.returncode, were_answering) == (0, [True, True])
    assert '"dearest": "elderberry"' in done.stdout
    assert code == 0
    assert servers
    await wait_until(lambda: not any(map(is_alive, servers)))
    assert not any(map(accepts_connections, servers_set.values()))
    assert not (tmp_path / ".runnel").exists()
