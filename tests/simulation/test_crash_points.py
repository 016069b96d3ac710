"""The process ends at every call to its store, and another process recovers."""

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
# The second process must wait until the first one counts as dead. So these tests run only some of
# the points, before and after calls alike. docs/explanation/reliability.md has the command for
# all of them.
on_redis = pytest.mark.timeout(600)


def sweep(function: str, *arguments: str) -> tuple[int, str]:
    """Runs a sweep in a separate process, because only a process without threads may fork."""
    environment = dict(os.environ)
    if os.access(MEMORY, os.W_OK):
        environment.setdefault("TMPDIR", str(MEMORY))
    command = [sys.executable, "-m", "simulation.crash_points"]
    completed = subprocess.run(
        [*command, f"tests.simulation.{function}", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return completed.returncode, completed.stdout + completed.stderr


@pytest.mark.parametrize("name", [scenario.name for scenario in scenarios()])
def test_the_result_is_the_same_wherever_the_process_died(name: str) -> None:
    code, output = sweep("crash_scenarios:scenarios", name)

    assert code == 0, output
    assert "all equal" in output


@pytest.mark.parametrize(("name", "after"), [("child", 0.6), ("cancel", 0.4)])
def test_the_result_is_the_same_wherever_the_resuming_process_died(name: str, after: float) -> None:
    """Runs every third point, because a task that crashed two processes waits up to two seconds."""
    arguments = [name, "--resume", str(after), "--every", "3"]
    code, output = sweep("crash_scenarios:scenarios", *arguments)

    assert code == 0, output
    assert "all equal" in output


@on_redis
@pytest.mark.parametrize("arguments", [["--every", "5"], ["--resume", "0.5", "--every", "11"]])
def test_the_result_is_the_same_wherever_a_process_on_redis_died(
    arguments: list[str], missing_part: MissingPart
) -> None:
    require_binary(RedisServer, missing_part)

    code, output = sweep("crash_scenarios:together", "--redis", *arguments)

    assert code == 0, output
    assert "all equal" in output


@on_redis
def test_the_result_is_the_same_whichever_call_to_redis_failed(missing_part: MissingPart) -> None:
    require_binary(RedisServer, missing_part)

    code, output = sweep("crash_scenarios:together", "--redis", "--failed-calls", "--every", "5")

    assert code == 0, output
    assert "all equal" in output


@on_redis
@pytest.mark.parametrize(
    ("broken", "arguments", "problem"),
    [
        ("keeps_the_inbox", [], "left over: 4 unconsumed messages"),
        ("forgets_the_dead", ["--every", "11"], "a process hangs"),
    ],
)
def test_a_broken_engine_on_redis_is_found_and_leaves_no_key(
    broken: str, arguments: list[str], problem: str, own_redis: RedisServer
) -> None:
    end_soon = ["--bad-points", "1", "--deadline", "5"]

    code, output = sweep(
        f"broken_engines:{broken}", "--redis-url", own_redis.url, *arguments, *end_soon
    )

    assert code == 1
    assert problem in output, output
    assert redis_wire.send_command(own_redis.port, get_password(own_redis), "DBSIZE") == ":0"


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        ("keeps_the_inbox", "left over: 1 unconsumed messages"),
        ("consumes_before_it_acts", "a process hangs"),
        ("does_not_resume", "a process hangs"),
    ],
)
def test_a_broken_engine_is_found(broken: str, problem: str) -> None:
    code, output = sweep(f"broken_engines:{broken}", "--bad-points", "1", "--deadline", "1.5")

    assert code == 1
    assert problem in output, output
