"""A thousand seeds with many faults break no invariant."""

import pytest

from simulation.campaign import run_seeds

SEEDS = 1_000
AT_ONCE = 100


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_seed_breaks_an_invariant(first: int) -> None:
    outcome = run_seeds(range(first, first + AT_ONCE))

    assert not outcome.findings, "\n".join(outcome.findings)
    assert outcome.seeds == AT_ONCE
    assert not outcome.find_rare_features()
    assert not outcome.inconclusive_seeds
