"""The file of running attempts gives the next process what the last one was doing, or nothing."""

from pathlib import Path

import pytest

from runnel.backends.local.task_board import NO_MARK
from runnel.backends.sqlite.running_tasks_file import FILE_BYTES, MAGIC, MARKS, SLOTS, RunningFile
from runnel.core.ids import Token
from runnel.testing.conformance.suite import token

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


def test_a_token_of_any_length_is_kept(path: Path) -> None:
    long = token("ж" * 10_000)

    after_a_kill(path, long)

    assert blamed(path, long, A) == [True, None]


def test_nobody_is_to_blame_for_the_end_of_a_process_that_was_told_to_end(path: Path) -> None:
    former = RunningFile(path)
    former.begin(A)
    former.excuse()

    found = RunningFile(path)
    found.begin(C)

    assert [found.has_killed(each) for each in (A, B)] == [False, False]
    assert blamed(path, C) == [True]


def test_an_excuse_without_a_file_makes_none(path: Path) -> None:
    running = RunningFile(path)

    running.excuse()

    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(MAGIC.ljust(FILE_BYTES - 1, b"\0"), id="its maker died"),
        pytest.param(MAGIC.replace(b"3", b"2").ljust(FILE_BYTES, b"\0"), id="an older format"),
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


@pytest.mark.parametrize("torn", [b"", b"\0" * 16, b"\xff" * 7])
def test_a_torn_slot_belongs_to_nobody(path: Path, torn: bytes) -> None:
    after_a_kill(path, A, B)
    content = bytearray(path.read_bytes())
    content[MARKS[1] + 1 : MARKS[1] + 1 + len(torn)] = torn
    path.write_bytes(content)

    found = RunningFile(path)

    assert (found.has_killed(A), found.has_killed(B)) == (True, None if torn else True)
    assert [found.begin(B), found.begin(C)] == [MARKS[0], MARKS[1]]


def test_where_no_file_can_be_made_tasks_run_unmarked(tmp_path: Path) -> None:
    running = RunningFile(tmp_path / "missing" / "p0.running")

    assert [running.begin(A), running.begin(B)] == [NO_MARK, NO_MARK]
    running.close()
