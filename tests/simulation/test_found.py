"""What the simulation has found: the smallest run of each stays, as a plan.

A plan and not only its seed, because what a seed means changes whenever the plans get richer.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from runnel.testing.simulation.plan import Plan
from runnel.testing.simulation.world import simulate
from tests.simulation import bugs

FOUND = Path(__file__).parent / "found"


def plan_named(name: str) -> Plan:
    return msgspec.json.decode((FOUND / f"{name}.json").read_bytes(), type=Plan)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_found_stays_fixed(path: Path) -> None:
    assert simulate(plan_named(path.stem)).broken is None


@pytest.mark.parametrize(
    "bug", [bugs.drops_come_after_the_history, bugs.closed_key_keeps_its_history]
)
def test_it_would_be_found_again(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)

    assert simulate(plan_named(bug.__name__)).broken is not None
