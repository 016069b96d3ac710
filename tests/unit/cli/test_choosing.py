"""Which executions the command line means."""

from datetime import datetime

import pytest

from runnel.cli.options import Chosen, filter_of, moment_of
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
def test_a_moment_is_so_long_ago_or_a_date(text: str, expected: float) -> None:
    assert moment_of("--since", text, NOW) == expected


@pytest.mark.parametrize("text", ["", "2", "h", "-2h", "2 years", "2h30m", "31.01.2026", "nan"])
def test_what_is_no_moment_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(InputError, match=r"--until: expected how long ago .*, got '"):
        moment_of("--until", text, NOW)


def test_the_options_make_one_filter() -> None:
    chosen = Chosen(
        status=["failed", "FAILED"],
        workflow="w",
        labels=["a=1", "runnel.key=k=v"],
        since="1m",
        until="30s",
        search="text",
    )

    wanted = filter_of(chosen, NOW)

    assert wanted == ExecutionFilter(
        states=(ExecutionState.FAILED,),
        workflow="w",
        labels={"a": "1", "runnel.key": "k=v"},
        created_from=NOW - 60,
        created_before=NOW - 30,
        text="text",
    )
    assert not chosen.is_empty


def test_no_option_means_every_execution_of_the_states_that_there_are() -> None:
    known = (ExecutionState.RUNNING, ExecutionState.PENDING)

    assert filter_of(Chosen(), NOW) == ExecutionFilter()
    assert filter_of(Chosen(), NOW, known=known).states == known
    assert filter_of(Chosen(status=["pending"]), NOW, known=known).states == known[1:]
    with pytest.raises(InputError, match="--status: expected one of running, pending, got 'fail"):
        filter_of(Chosen(status=["failed"]), NOW, known=known)
    assert Chosen().is_empty


def test_a_text_that_no_store_can_look_for_is_refused() -> None:
    for chosen in (Chosen(search="\udcff"), Chosen(workflow="\udcff"), Chosen(labels=["a=\udcff"])):
        with pytest.raises(InputError, match="surrogate"):
            filter_of(chosen, NOW)
