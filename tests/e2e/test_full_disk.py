"""Commands that only read work on a full disk, and on a Redis that refuses writes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runnel import SyncClient
from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from tests.conftest import MissingPart
from tests.e2e.dev_server import dev_server
from tests.e2e.program import DEADLINE_S, Program, clean_environment
from tests.redis_server import get_password

pytestmark = pytest.mark.e2e

# The workflow `noted` waits for a signal after its first node.
START = {
    "of a process that has ended": "$runnel run chain.json",
    "of a process that was killed": """
        $runnel run noted.json -i file=first.log &
        until [ -s first.log ]; do sleep 0.05; done
        kill -9 $!
    """,
    "of a process that runs": """
        $runnel run noted.json -i file=first.log &
        until [ -s first.log ]; do sleep 0.05; done
    """,
}
SCRIPT = """
set -u
runnel="{python} -m runnel"
mount -t tmpfs -o size=2m tmpfs data || exit 99
export RUNNEL_DATA_DIR=data
{{ {start}
}} > start.out 2>&1
dd if=/dev/zero of=data/fill bs=1k > /dev/null 2>&1
for command in 'list' 'show @last' 'history @last' 'run chain.json' 'list --json'; do
    $runnel $command > command.out 2> command.err
    echo "$command: $?" >> codes
    cat command.out >> all.out
    cat command.err >> all.err
done
exit 0
"""

FORGET_DEFINITIONS = (
    "EVAL \"return redis.call('DEL', unpack(redis.call('KEYS', '*:definition:*')))\" 0"
)


@pytest.fixture
def namespace(missing_part: MissingPart) -> list[str]:
    """Returns a command prefix that runs a program with its own mounts.

    All processes that the program has started end with it.
    """
    prefix = ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    if not shutil.which(prefix[0]) or subprocess.run([*prefix, "true"], check=False).returncode:
        missing_part("a full disk", "this system does not allow 'unshare --mount'")
    return prefix


@pytest.mark.parametrize("start", START.values(), ids=START)
def test_only_commands_that_write_fail_on_a_full_disk(
    tmp_path: Path, namespace: list[str], start: str
) -> None:
    Program(tmp_path)
    (tmp_path / "data").mkdir()

    done = subprocess.run(
        [*namespace, "bash", "-c", SCRIPT.format(python=sys.executable, start=start)],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    errors = (tmp_path / "all.err").read_text()
    assert (tmp_path / "codes").read_text().splitlines() == [
        "list: 0",
        "show @last: 0",
        "history @last: 0",
        "run chain.json: 1",
        "list --json: 0",
    ], errors
    assert "is full: free some space" in errors
    assert "Traceback" not in errors
    assert ("COMPLETED" if start == START["of a process that has ended"] else "RUNNING") in (
        tmp_path / "all.out"
    ).read_text()


@pytest.mark.parametrize("setting", ["maxmemory 1", "min-replicas-to-write 1"])
@pytest.mark.parametrize("has_archive", [False, True], ids=["redis", "redis+postgres"])
def test_only_commands_that_write_fail_on_a_redis_that_refuses_writes(
    tmp_path: Path,
    own_redis: RedisServer,
    shared_postgres: PostgresServer,
    setting: str,
    has_archive: bool,
) -> None:
    stores = {"REDIS_URL": own_redis.url}
    if has_archive:
        stores |= {"POSTGRES_URL": shared_postgres.url, "POSTGRES_SCHEMA": tmp_path.name}
    with dev_server(tmp_path, **stores) as server, SyncClient(server.url) as client:
        client.wait(client.submit(tmp_path / "chain.json"), timeout_s=DEADLINE_S)
        program = server.program
    password = get_password(own_redis)
    if has_archive:  # after a week, Redis forgets a definition that is not used
        redis_wire.send_command(own_redis.port, password, FORGET_DEFINITIONS)
    assert redis_wire.send_command(own_redis.port, password, f"CONFIG SET {setting}") == "OK"

    for command in ("list", "show @last", "history @last", "workflows", "queues", "workers"):
        done = program.run(*command.split(), **stores)
        assert done.returncode == 0, f"{command}: {done.stderr}"
    refused = program.run("run", "chain.json", **stores)

    assert refused.returncode == 1
    assert ("OOM" if setting.startswith("maxmemory") else "NOREPLICAS") in refused.stderr
    assert "Traceback" not in refused.stderr
