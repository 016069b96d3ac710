"""The test suite stays within its time budget and reports parts that exceed it."""

import pytest

from tests.conftest import BUDGET_S, TimeBudget, get_part

# The sum over all workers. Three workers on two cores need eight and a half minutes, of which the
# collection of the tests takes half a minute.
TOTAL_MAX_S = 1_750
UNIT_S = BUDGET_S["unit"]


def report(part: str, *, seconds: float, skipped: str | None = None) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=f"tests/{part}/test_a.py::test_b",
        location=("", 0, ""),
        keywords={},
        outcome="passed" if skipped is None else "skipped",
        longrepr=None if skipped is None else ("test_a.py", 1, f"Skipped: {skipped}"),
        when="call",
        duration=seconds,
    )


def test_all_budgets_together_stay_below_the_total() -> None:
    assert sum(BUDGET_S.values()) <= TOTAL_MAX_S


def test_a_part_is_the_folder_below_tests() -> None:
    assert get_part("tests/unit/core/test_a.py::test_b[tests/e2e]") == "unit"


@pytest.mark.parametrize(
    ("part", "seconds", "factor", "expected"),
    [
        ("unit", UNIT_S - 1, 1.0, []),
        ("unit", UNIT_S + 1, 1.0, [f"tests/unit took {UNIT_S + 1}.0 s, it may take {UNIT_S} s"]),
        ("unit", UNIT_S + 1, 2.0, []),
        ("new", 0.0, 1.0, ["tests/new has no budget: give it one in tests/conftest.py"]),
    ],
)
def test_a_part_that_takes_too_long_is_named(
    part: str, seconds: float, factor: float, expected: list[str]
) -> None:
    ledger = TimeBudget(factor=factor, is_strict=False)

    ledger.pytest_runtest_logreport(report(part, seconds=seconds / 2))
    ledger.pytest_runtest_logreport(report(part, seconds=seconds / 2))

    assert ledger.over_budget() == expected


@pytest.mark.parametrize(("seconds", "expected"), [(UNIT_S + 1, False), (2 * UNIT_S + 1, True)])
def test_only_twice_the_budget_fails_the_run(seconds: float, expected: bool) -> None:
    ledger = TimeBudget(factor=1, is_strict=True)

    ledger.pytest_runtest_logreport(report("unit", seconds=seconds))

    assert ledger.is_failure() is expected


@pytest.mark.parametrize(
    ("is_strict", "reason", "expected"),
    [
        (True, "missing part: redis: no binary", True),
        (False, "missing part: redis: no binary", False),
        (True, "only on another system", False),
    ],
)
def test_a_missing_part_fails_the_run_only_when_strict(
    is_strict: bool, reason: str, expected: bool
) -> None:
    ledger = TimeBudget(factor=1, is_strict=is_strict)

    ledger.pytest_runtest_logreport(report("unit", seconds=0, skipped=reason))

    assert ledger.is_failure() is expected
