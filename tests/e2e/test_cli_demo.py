"""The example of `make demo` shows parallel nodes, a retry, a skipped node and a fan-in."""

from pathlib import Path

import pytest

from tests.e2e.program import Program

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_demo_shows_parallelism_a_retry_a_skip_and_a_fan_in(tmp_path: Path) -> None:
    document = Program(tmp_path).documents("run", str(EXAMPLES / "demo.yaml"))[0]

    nodes = document["nodes"]
    assert document["output"] == {
        "orders": 4,
        "revenue": 74.7,
        "weather": "sunny",
        "products": 12,
        "dearest": "elderberry",
    }
    assert nodes["orders"]["started_at"] < nodes["stock"]["finished_at"]
    assert nodes["weather"]["attempts"] == 2
    assert nodes["alarm"]["status"] == "SKIPPED"
    assert nodes["prices"]["items"] == 12
