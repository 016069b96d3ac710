"""The file of running attempts gives the next process what the last one was doing, or nothing."""

from pathlib import Path

import pytest

from runnel.backends.local.marks import NO_MARK
from runnel.backends.sqlite.running_file import (
    FILE_BYTES,
    MAGIC,
    MARKS,
    SLOT_BYTES,
    SLOTS,
    RunningFile,
)
from runnel.core.ids import Token
from runnel.testing.conformance.values import token

A, B, C = token("a"), token("b"), token("c")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p0.running"


def after_a_kill(path: Path, *tokens: Token) -> RunningFile:
    """What a process finds after one that ran these was killed: nobody has closed the file."""
    former = RunningFile(path)
    for each in tokens:
        former.begin(each)
    return RunningFile(path)


def blamed(path: Path, *tokens: Token) -> list[bool | None]:
    found = RunningFile(path)
    return [found.has_killed(each) for each in tokens]


def test_what_has_begun_and_not_ended_is_found_by_the_next_process(path: Path) -> None:
    former = RunningFile(path)
    marks = [former.begin(each) for each in (A, B, C)]
    former.end(marks[1])

    found = RunningFile(path)

    assert [found.has_killed(each) for each in (A, B, C)] == [True, None, True]


def test_there_is_no_file_before_the_first_start_nor_after_a_good_end(path: Path) -> None:
    running = RunningFile(path)
    existed = [path.exists()]
    running.begin(A)
    existed.append(path.exists())

    running.close()

    assert [*existed, path.exists()] == [False, True, False]


def test_a_full_file_takes_no_more_until_one_ends(path: Path) -> None:
    running = RunningFile(path)
    marks = [running.begin(token(f"n{number}")) for number in range(SLOTS)]

    refused = running.begin(A)
    running.end(marks[7])

    assert sorted(marks) == list(MARKS)
    assert (refused, running.begin(A)) == (NO_MARK, marks[7])


def test_the_longest_name_that_fits_is_kept_and_a_longer_one_is_not(path: Path) -> None:
    rest = len(b'b["x1","",-1,1,"n"]\n')
    fits, too_long = (token("n" * (SLOT_BYTES - rest + extra)) for extra in (0, 1))
    running = RunningFile(path)

    marks = [running.begin(each) for each in (fits, too_long, A)]

    assert (marks[0] != NO_MARK, marks[1]) == (True, NO_MARK)
    assert blamed(path, fits, too_long, A) == [True, None, True]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(MAGIC.ljust(FILE_BYTES - 1, b"\0"), id="its maker died"),
        pytest.param(MAGIC.replace(b"2", b"1").ljust(FILE_BYTES, b"\0"), id="an older format"),
        pytest.param(b'b["x1","a",-1,1,"n"]\n' * 9_000, id="something else"),
    ],
)
def test_a_file_of_another_format_is_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    found = RunningFile(path)
    before = found.has_killed(A)
    found.begin(A)

    assert before is None
    assert blamed(path, A) == [True]


@pytest.mark.parametrize(
    "slot",
    [
        pytest.param(b'b["x1","a",-1,', id="half a token"),
        pytest.param(b'b["x1","a",-1,1]\n', id="a field is missing"),
        pytest.param(b'b["x1","\xff",-1,1,"n"]\n', id="no text"),
        pytest.param(b"b", id="only the state"),
    ],
)
def test_a_torn_slot_is_free(path: Path, slot: bytes) -> None:
    after_a_kill(path, A)
    content = bytearray(path.read_bytes())
    content[MARKS[1] : MARKS[1] + len(slot)] = slot
    path.write_bytes(content)

    found = RunningFile(path)

    assert (found.has_killed(A), found.has_killed(B)) == (True, None)
    assert found.begin(B) == MARKS[0]
    assert found.begin(C) == MARKS[1]


def test_where_no_file_can_be_made_tasks_run_unmarked(tmp_path: Path) -> None:
    running = RunningFile(tmp_path / "missing" / "p0.running")

    assert [running.begin(A), running.begin(B)] == [NO_MARK, NO_MARK]
    running.close()
