"""The simulation finds every deliberate defect within SEEDS_MAX seeds."""

import pytest

from simulation.plan import make_plan
from simulation.world import simulate
from tests.simulation import bugs, delay_bugs, notification_bugs, rule_bugs, value_bugs

SEEDS_MAX = 100
# The first seeds find the rarest defects: 44 s of processor time for all bugs instead of 75.
SEEDS = tuple(dict.fromkeys((0, 1, 72, 36, 22, 43, 16, *range(SEEDS_MAX))))

ALL = (*bugs.ALL, *value_bugs.ALL, *rule_bugs.ALL, *delay_bugs.ALL, *notification_bugs.ALL)


@pytest.mark.parametrize("bug", ALL, ids=lambda bug: bug.__name__)
def test_the_simulation_finds_the_bug(bug: bugs.Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    runs = (simulate(make_plan(seed)) for seed in SEEDS)
    violation = next((run.violation for run in runs if run.violation is not None), None)

    assert violation is not None
    assert violation.check != "simulator", f"the defect breaks the simulator: {violation}"
