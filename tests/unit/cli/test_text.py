"""Numbers, times, labels and suggested commands, as the command line prints them."""

from pathlib import Path

import pytest

from runnel.app.process_signals import build_engine_name, parse_engine_pid
from runnel.cli import errors as exits
from runnel.cli.commands.signal import read_payload
from runnel.cli.options import StoreLocation, read_labels
from runnel.cli.render.text import (
    format_count,
    format_duration,
    format_labels,
    join_names,
    shorten,
)
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.inputs import read_input
from runnel.cli.session.stuck import NodeWait, suggest_commands
from runnel.core.states import ExecutionState, NodeState
from runnel.views.execution import format_time


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1m 00s"),
        (3_599, "59m 59s"),
        (3_600, "1h 00m"),
        (90_000, "1d 1h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, expected: str) -> None:
    assert format_duration(seconds) == expected


def test_a_time_is_written_in_iso_8601_in_utc() -> None:
    assert format_time(0.25) == "1970-01-01T00:00:00.250Z"


def test_a_count_agrees_with_its_noun() -> None:
    assert [format_count(1, "node"), format_count(1_200, "node")] == ["1 node", "1,200 nodes"]


def test_a_list_of_names_is_shortened() -> None:
    assert join_names(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_a_short_text_is_one_line() -> None:
    assert shorten("one\n two three", 9) == "one two …"


def test_labels_that_runnel_adds_are_not_shown() -> None:
    assert format_labels({"team": "red", "runnel.source": "/x"}) == "team=red"


def test_a_hint_names_the_data_dir_only_when_the_user_did() -> None:
    assert CommandHints().resume("e1") == "runnel resume e1"
    assert (
        CommandHints(StoreLocation(Path("my data"))).resume()
        == "runnel resume --data-dir 'my data'"
    )


def test_hints_for_servers_never_suggest_resume() -> None:
    hints = CommandHints(StoreLocation(redis_url="redis://:geheim@host/0"), is_remote=True)

    assert hints.resume("e1") == "runnel orchestrator --redis-url 'redis://***@host/0'"
    assert hints.watch_again("e1") == "runnel watch e1 --redis-url 'redis://***@host/0'"
    assert CommandHints(is_remote=True).watch_again() == "runnel list"


def test_an_engine_is_named_after_its_process() -> None:
    assert parse_engine_pid(build_engine_name("abc")) is not None
    assert parse_engine_pid("engine-abc") is None


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (ExecutionState.COMPLETED, 0),
        (ExecutionState.FAILED, 1),
        (ExecutionState.CANCELLED, 1),
    ],
)
def test_the_exit_code_follows_from_the_state(state: ExecutionState, code: int) -> None:
    assert exits.EXIT_CODE_BY_STATE[state] == code


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], None),
        (["{}"], {}),
        (['{"by": "ada"}'], {"by": "ada"}),
        (["true"], True),
        (["by=ada"], {"by": "ada"}),
        (["by=ada", "count=2"], {"by": "ada", "count": 2}),
    ],
)
def test_a_payload_is_json_or_assignments(words: list[str], expected: object) -> None:
    assert read_payload(words) == expected


def test_assignments_override_the_input_file(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"user": {"name": "Ada", "age": 36}, "year": 1}')

    merged = read_input(str(file), ["user.name=Bob", "year=2"])

    assert merged == {"user": {"name": "Bob", "age": 36}, "year": 2}


def test_labels_are_texts() -> None:
    assert read_labels(["team=red", "n=1"]) == {"team": "red", "n": "1"}


@pytest.mark.parametrize(
    ("is_owned", "expected"),
    [
        (True, ("runnel signal e1 ok",)),
        (False, ("runnel resume e1",)),
    ],
)
def test_the_suggested_commands_continue_a_stuck_execution(
    is_owned: bool, expected: tuple[str, ...]
) -> None:
    waits = NodeWait(
        node="a", status=NodeState.WAITING, waits_for="signal 'ok'", since=None, signal="ok"
    )

    assert suggest_commands("e1", (waits,), CommandHints(), is_owned=is_owned) == expected
