"""What a sweep over crash points takes for a problem."""

import msgspec
import pytest

from simulation.crash_points.verdict import Snapshot, find_problems

UNDISTURBED = Snapshot(
    executions={"ROOT": {"state": "COMPLETED", "nodes": {"a": "COMPLETED"}}},
    settled=["x/a", "x/b"],
    runs=["x/a 1", "x/b 1"],
    left_over={},
    dead_letters=0,
)
CRASH = Snapshot(
    executions={}, settled=["y/a"], runs=["y/a 1", "y/b 1"], left_over={"timers": 1}, dead_letters=0
)
GOOD = msgspec.structs.replace(
    UNDISTURBED, settled=["y/a", "y/b"], runs=["y/a 1", "y/b 1", "y/b 2"]
)


def test_what_was_not_settled_may_run_once_more() -> None:
    assert find_problems(GOOD, crashes=[CRASH], undisturbed=UNDISTURBED) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"runs": ["y/a 1", "y/b 1", "y/a 2", "y/b 2"]},
            "y/a was settled when the process ended, and ran again",
        ),
        ({"runs": ["y/a 1", "y/b 1", "y/b 1"]}, "one attempt ran 2 times: y/b 1"),
        (
            {"runs": ["y/a 1", "y/b 1", "y/b 2", "y/b 3"]},
            "ROOT/b ran 3 times, 1 without a crash",
        ),
        ({"runs": ["y/a 1"]}, "ROOT/b never ran"),
        (
            {"runs": ["y/a 1", "y/b 1", "y/c 1"]},
            "ROOT/c ran 1 times, 0 without a crash",
        ),
        ({"left_over": {"timers": 2}}, "left over: 2 timers"),
        ({"dead_letters": 1}, "dead letters: expected 0, found 1"),
        (
            {"executions": {"ROOT": {"state": "FAILED", "nodes": {"a": "COMPLETED"}}}},
            "executions.ROOT.state: expected COMPLETED, found FAILED",
        ),
        ({"executions": {}}, "executions.ROOT: expected {'state'"),
    ],
)
def test_each_promise_that_is_broken_is_named(changed: dict[str, object], problem: str) -> None:
    end = msgspec.structs.replace(GOOD, **changed)

    found = find_problems(end, crashes=[CRASH], undisturbed=UNDISTURBED)

    assert len(found) == 1
    assert found[0].startswith(problem)
