"""The process ends at every call to its store, and another one makes it good."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runnel.app.private_servers import redis as redis_wire
from runnel.app.private_servers.redis import RedisServer
from tests.conftest import MissingPart
from tests.redis_server import get_password
from tests.servers import require_binary
from tests.simulation.crash_scenarios import scenarios

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
# A second process has to wait until it may take the first one for dead: so only some of the points,
# as many before a call as after one; all of them by the command, as docs/reliability.md says.
on_redis = pytest.mark.timeout(600)


def sweep(function: str, *arguments: str) -> tuple[int, str]:
    """In a process of its own: only one without threads may fork."""
    environment = dict(os.environ)
    if os.access(MEMORY, os.W_OK):
        environment.setdefault("TMPDIR", str(MEMORY))
    command = [sys.executable, "-m", "simulation.crash_points"]
    done = subprocess.run(
        [*command, f"tests.simulation.{function}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name", [each.name for each in scenarios()])
def test_an_end_is_the_same_wherever_the_process_died(name: str) -> None:
    code, said = sweep("crash_scenarios:scenarios", name)

    assert code == 0, said
    assert "all equal" in said


@pytest.mark.parametrize(("name", "after"), [("child", 0.6), ("cancel", 0.4)])
def test_an_end_is_the_same_wherever_the_process_that_resumes_died(name: str, after: float) -> None:
    """Each third point: what was lost with two processes waits for up to two seconds."""
    arguments = [name, "--resume", str(after), "--every", "3"]
    code, said = sweep("crash_scenarios:scenarios", *arguments)

    assert code == 0, said
    assert "all equal" in said


@on_redis
@pytest.mark.parametrize("arguments", [["--every", "5"], ["--resume", "0.5", "--every", "11"]])
def test_an_end_is_the_same_wherever_a_process_on_redis_died(
    arguments: list[str], missing_part: MissingPart
) -> None:
    require_binary(RedisServer, missing_part)

    code, said = sweep("crash_scenarios:together", "--redis", *arguments)

    assert code == 0, said
    assert "all equal" in said


@on_redis
def test_an_end_is_the_same_whichever_call_to_redis_failed(missing_part: MissingPart) -> None:
    require_binary(RedisServer, missing_part)

    code, said = sweep("crash_scenarios:together", "--redis", "--failed-calls", "--every", "5")

    assert code == 0, said
    assert "all equal" in said


@on_redis
@pytest.mark.parametrize(
    ("broken", "arguments", "found"),
    [
        ("keeps_the_inbox", [], "left over: 4 unconsumed messages"),
        ("forgets_the_dead", ["--every", "11"], "a process hangs"),
    ],
)
def test_a_broken_engine_on_redis_is_found_and_leaves_no_key(
    broken: str, arguments: list[str], found: str, own_redis: RedisServer
) -> None:
    end_soon = ["--bad-points", "1", "--deadline", "5"]

    code, said = sweep(
        f"broken_engines:{broken}", "--redis-url", own_redis.url, *arguments, *end_soon
    )

    assert code == 1
    assert found in said, said
    assert redis_wire.send_command(own_redis.port, get_password(own_redis), "DBSIZE") == ":0"


@pytest.mark.parametrize(
    ("broken", "found"),
    [
        ("keeps_the_inbox", "left over: 1 unconsumed messages"),
        ("consumes_before_it_acts", "a process hangs"),
        ("does_not_resume", "a process hangs"),
    ],
)
def test_a_broken_engine_is_found(broken: str, found: str) -> None:
    code, said = sweep(f"broken_engines:{broken}", "--bad-points", "1", "--deadline", "1.5")

    assert code == 1
    assert found in said, said
