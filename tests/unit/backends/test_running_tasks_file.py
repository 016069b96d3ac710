"""The file of running tasks shows the next process which tasks were running, or nothing."""

from pathlib import Path

import pytest

from runnel.backends.local.task_board import NO_SLOT
from runnel.backends.sqlite.running_tasks_file import (
    FILE_BYTES,
    MAGIC,
    SLOT_OFFSETS,
    SLOTS,
    RunningTasksFile,
)
from runnel.core.ids import TaskToken
from runnel.ports.store import LossKind
from runnel.testing.conformance.suite import make_token

A, B, C = make_token("a"), make_token("b"), make_token("c")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p0.running"


def after_a_kill(path: Path, *tokens: TaskToken) -> RunningTasksFile:
    """Returns the file as the next process finds it after a kill: it was not closed."""
    former = RunningTasksFile(path)
    for token in tokens:
        former.add(token)
    return RunningTasksFile(path)


def blamed(path: Path, *tokens: TaskToken) -> list[LossKind | None]:
    file = RunningTasksFile(path)
    return [file.find_loss(token) for token in tokens]


def test_the_next_process_finds_tasks_that_started_and_did_not_end(path: Path) -> None:
    former = RunningTasksFile(path)
    marks = [former.add(token) for token in (A, B, C)]
    former.remove(marks[1])

    file = RunningTasksFile(path)

    assert [file.find_loss(token) for token in (A, B, C)] == [
        LossKind.TOGETHER,
        None,
        LossKind.TOGETHER,
    ]


def test_there_is_no_file_before_the_first_start_or_after_a_regular_end(path: Path) -> None:
    running = RunningTasksFile(path)
    existed = [path.exists()]
    running.add(A)
    existed.append(path.exists())

    running.close()

    assert [*existed, path.exists()] == [False, True, False]


def test_a_full_file_accepts_no_task_until_one_ends(path: Path) -> None:
    running = RunningTasksFile(path)
    marks = [running.add(make_token(f"n{number}")) for number in range(SLOTS)]

    refused = running.add(A)
    running.remove(marks[7])

    assert sorted(marks) == list(SLOT_OFFSETS)
    assert (refused, running.add(A)) == (NO_SLOT, marks[7])


def test_a_token_of_any_length_is_recorded(path: Path) -> None:
    long = make_token("ж" * 10_000)

    after_a_kill(path, long)

    assert blamed(path, long, A) == [LossKind.ALONE, None]


def test_no_task_is_blamed_for_the_end_of_a_process_that_was_asked_to_stop(path: Path) -> None:
    former = RunningTasksFile(path)
    former.add(A)
    former.mark_clean_shutdown()

    file = RunningTasksFile(path)
    file.add(C)

    assert [file.find_loss(token) for token in (A, B)] == [
        LossKind.NOT_STARTED,
        LossKind.NOT_STARTED,
    ]
    assert blamed(path, C) == [LossKind.ALONE]


def test_an_attempt_in_a_child_process_did_not_kill_its_process(path: Path) -> None:
    former = RunningTasksFile(path)
    former.isolate(former.add(A))
    former.add(B)

    assert blamed(path, A, B) == [LossKind.NOT_STARTED, LossKind.ALONE]


@pytest.mark.parametrize("clears_between", [False, True])
def test_tasks_of_two_partitions_of_one_process_died_together(
    tmp_path: Path, *, clears_between: bool
) -> None:
    paths = [tmp_path / "p0.running", tmp_path / "p1.running"]
    for path, token in zip(paths, (A, B), strict=True):
        RunningTasksFile(path, process_id=b"former 1").add(token)

    kinds = []
    for path, token in zip(paths, (A, B), strict=True):
        file = RunningTasksFile(path, process_id=b"second 2")
        kinds.append(file.find_loss(token))
        if clears_between:
            file.add(C)

    assert kinds == [LossKind.TOGETHER, LossKind.TOGETHER]


def test_tasks_of_two_processes_did_not_die_together(tmp_path: Path) -> None:
    path = tmp_path / "p0.running"
    RunningTasksFile(path, process_id=b"former 1").add(A)
    RunningTasksFile(tmp_path / "p1.running", process_id=b"another1").add(B)

    assert blamed(path, A) == [LossKind.ALONE]


def test_company_of_an_earlier_crash_does_not_count_for_the_next_crash(tmp_path: Path) -> None:
    path = tmp_path / "p0.running"
    RunningTasksFile(path, process_id=b"former 1").add(A)
    RunningTasksFile(tmp_path / "p1.running", process_id=b"former 1").add(B)
    RunningTasksFile(tmp_path / "p1.running", process_id=b"second 2")

    RunningTasksFile(path, process_id=b"second 2").add(C)

    assert blamed(path, C) == [LossKind.ALONE]


def test_marking_a_clean_shutdown_creates_no_file(path: Path) -> None:
    running = RunningTasksFile(path)

    running.mark_clean_shutdown()

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

    file = RunningTasksFile(path)
    before = file.find_loss(A)
    file.add(A)

    assert before is None
    assert blamed(path, A) == [LossKind.ALONE]


@pytest.mark.parametrize("torn", [b"", b"\0" * 16, b"\xff" * 7])
def test_a_partially_written_slot_matches_no_task(path: Path, torn: bytes) -> None:
    after_a_kill(path, A, B)
    content = bytearray(path.read_bytes())
    content[SLOT_OFFSETS[1] + 1 : SLOT_OFFSETS[1] + 1 + len(torn)] = torn
    path.write_bytes(content)

    file = RunningTasksFile(path)

    assert (file.find_loss(A), file.find_loss(B)) == (
        LossKind.TOGETHER,
        None if torn else LossKind.TOGETHER,
    )
    assert [file.add(B), file.add(C)] == [SLOT_OFFSETS[0], SLOT_OFFSETS[1]]


def test_tasks_run_unrecorded_if_the_file_can_not_be_created(tmp_path: Path) -> None:
    running = RunningTasksFile(tmp_path / "missing" / "p0.running")

    assert [running.add(A), running.add(B)] == [NO_SLOT, NO_SLOT]
    running.close()
