"""The smallest plan of each bug that the simulation has found.

The plan is stored, not only its seed, because a seed gives another plan when plans change. Each bug
also has a table test, because a run changes when the engine changes.
"""

from pathlib import Path

import msgspec
import pytest

from simulation.plan import SimulationPlan
from simulation.world import simulate

FOUND = Path(__file__).parent / "found"


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_a_fixed_bug_stays_fixed(path: Path) -> None:
    plan = msgspec.json.decode(path.read_bytes(), type=SimulationPlan)

    assert simulate(plan).violation is None
