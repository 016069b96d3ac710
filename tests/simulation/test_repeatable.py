"""The same seed always gives the same run, so that a failure can be repeated."""

import os
import subprocess
import sys

import pytest

from simulation.plan import make_plan
from simulation.world import simulate

SEEDS = range(20)
PROGRAM = """
from simulation.plan import make_plan
from simulation.world import simulate
for seed in range(20):
    print(simulate(make_plan(seed)).digest)
"""


@pytest.fixture(scope="module")
def digests() -> list[str]:
    return [simulate(make_plan(seed)).digest for seed in SEEDS]


def test_the_same_seed_gives_the_same_run(digests: list[str]) -> None:
    assert [simulate(make_plan(seed)).digest for seed in SEEDS] == digests


def test_no_two_seeds_give_the_same_run(digests: list[str]) -> None:
    assert len(set(digests)) == len(SEEDS)


def test_another_process_gives_the_same_run(digests: list[str]) -> None:
    """The order of a set of strings differs between processes. No run may depend on it."""
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "1"},  # random in this process
        capture_output=True,
        text=True,
        check=True,
    )

    assert completed.stdout.split() == digests
