"""The same seed gives the same run, always: a finding can be looked at as often as it takes."""

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
    """Sets of texts have another order in each process: nothing may depend on it."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "1"},  # of this process it is drawn by lot
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.split() == digests
