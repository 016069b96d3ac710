"""What the simulation has found: each seed stays, with the sentence that it led to."""

import pytest

from runnel.testing.simulation.plan import make_plan
from runnel.testing.simulation.world import simulate

FOUND = {
    # Of a decision cut into several commits, the drops came after the history that cancelled.
    1001169: "a cancelled task is not started between two parts of one decision",
}


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.values())
def test_what_was_found_stays_fixed(seed: int) -> None:
    assert simulate(make_plan(seed)).broken is None
