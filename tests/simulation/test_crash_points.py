"""The process ends at every call to its store, and another one makes it good."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.crash_scenarios import scenarios

ROOT = Path(__file__).parents[2]
MEMORY = Path("/dev/shm")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def sweep(function: str, *arguments: str) -> tuple[int, str]:
    """In a process of its own: only one without threads may fork."""
    environment = dict(os.environ)
    if os.access(MEMORY, os.W_OK):
        environment.setdefault("TMPDIR", str(MEMORY))
    command = [sys.executable, "-m", "runnel.testing.crash_points"]
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
    code, said = sweep("crash_scenarios:scenarios", name, "--resume", str(after))

    assert code == 0, said
    assert "all equal" in said


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
