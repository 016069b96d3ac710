"""The filter options of the command line choose executions."""

from datetime import datetime

import pytest

from runnel.cli.options import parse_past_time
from runnel.cli.selection import ExecutionSelection, build_filter
from runnel.core.states import ExecutionState
from runnel.errors import InputError
from runnel.ports.archive import ExecutionFilter

NOW = 1_000_000.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0s", NOW),
        ("90s", NOW - 90),
        ("30m", NOW - 1_800),
        (" 2 h ", NOW - 7_200),
        ("1.5d", NOW - 129_600),
        ("2w", NOW - 1_209_600),
        ("1970-01-02T00:00Z", 86_400.0),
        ("1970-01-02T02:00:00.5+02:00", 86_400.5),
        ("2026-01-31", datetime(2026, 1, 31).astimezone().timestamp()),
        ("2026-01-31 09:30", datetime(2026, 1, 31, 9, 30).astimezone().timestamp()),
    ],
)
def test_a_time_is_an_age_or_a_date(text: str, expected: float) -> None:
    assert parse_past_time("--since", text, NOW) == expected


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 years", "2h30m", "31.01.2026", "nan"])
def test_an_invalid_time_is_refused_with_the_valid_formats(text: str) -> None:
    with pytest.raises(InputError, match=r"--until: expected how long ago .*, got '"):
        parse_past_time("--until", text, NOW)


def test_the_options_make_one_filter() -> None:
    chosen = ExecutionSelection(
        status=["failed", "FAILED"],
        workflow="w",
        labels=["a=1", "runnel.key=k=v"],
        since="1m",
        until="30s",
        search="text",
    )

    built = build_filter(chosen, NOW)

    assert built == ExecutionFilter(
        states=(ExecutionState.FAILED,),
        workflow="w",
        labels={"a": "1", "runnel.key": "k=v"},
        created_from=NOW - 60,
        created_before=NOW - 30,
        text="text",
    )
    assert not chosen.is_empty


def test_without_options_the_filter_matches_every_execution_in_the_allowed_states() -> None:
    known = (ExecutionState.RUNNING, ExecutionState.PENDING)

    assert build_filter(ExecutionSelection(), NOW) == ExecutionFilter()
    assert build_filter(ExecutionSelection(), NOW, allowed_states=known).states == known
    assert (
        build_filter(ExecutionSelection(status=["pending"]), NOW, allowed_states=known).states
        == known[1:]
    )
    with pytest.raises(InputError, match="--status: expected one of running, pending, got 'fail"):
        build_filter(ExecutionSelection(status=["failed"]), NOW, allowed_states=known)
    assert ExecutionSelection().is_empty


def test_a_text_that_no_store_can_search_for_is_refused() -> None:
    for chosen in (
        ExecutionSelection(search="\udcff"),
        ExecutionSelection(workflow="\udcff"),
        ExecutionSelection(labels=["a=\udcff"]),
    ):
        with pytest.raises(InputError, match="surrogate"):
            build_filter(chosen, NOW)
