"""docs/reference/run-when.md: each row of its table is what the core decides."""

import re
from itertools import combinations
from pathlib import Path

import pytest

from runnel.core.run_when import (
    ParentOutcome,
    RunWhen,
    SkipReason,
    apply_run_when,
    describe_rule_not_met,
)

PAGE = (Path(__file__).parents[2] / "docs/reference/run-when.md").read_text(encoding="utf-8")
RULES = list(RunWhen)
NO_PARENTS = "(no parents)"


def read_table(first_column: str) -> list[list[str]]:
    """Returns the rows of the table whose first column has this title, without its head."""
    lines = PAGE.partition(f"| {first_column} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def parse_outcomes(cell: str) -> frozenset[ParentOutcome]:
    words = [] if cell == NO_PARENTS else cell.split(", ")
    return frozenset(ParentOutcome(word) for word in words)


ROWS = read_table("parents")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_what_the_core_decides(row: list[str]) -> None:
    outcomes = parse_outcomes(row[0])
    decided = ["runs" if apply_run_when(rule, outcomes) is None else "skipped" for rule in RULES]

    assert row[1:] == decided


def test_the_columns_are_all_rules() -> None:
    head = re.search(r"^\| parents \|(.*)\|$", PAGE, re.MULTILINE)

    assert head is not None
    assert re.findall(r"`(\w+)`", head[1]) == [rule.value for rule in RULES]


def test_every_single_outcome_and_every_pair_has_a_row() -> None:
    pairs = [*combinations(ParentOutcome, 2), *combinations(ParentOutcome, 1)]

    assert {parse_outcomes(row[0]) for row in ROWS} == {frozenset(), *map(frozenset, pairs)}


def test_every_outcome_and_every_reason_is_explained() -> None:
    assert {row[0] for row in read_table("word in the table")} == set(ParentOutcome)
    rules = (RunWhen.ALL_COMPLETED, RunWhen.ONE_FAILED)
    reasons = {*SkipReason, *map(describe_rule_not_met, rules)} - {SkipReason.RULE_NOT_MET}
    assert {row[0] for row in read_table("reason")} == reasons
