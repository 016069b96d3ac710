"""What the simulation has found: the smallest run of each stays, as a plan.

A plan and not only its seed, because what a seed means changes whenever the plans get richer. Each
has a table test of its own as well, because a run takes another course when the engine changes.
"""

from pathlib import Path

import msgspec
import pytest

from simulation.plan import SimulationPlan
from simulation.world import simulate

FOUND = Path(__file__).parent / "found"


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_stays_fixed(path: Path) -> None:
    plan = msgspec.json.decode(path.read_bytes(), type=SimulationPlan)

    assert simulate(plan).violation is None
