"""What a sweep does to a process at one of its moments, and which warnings it expects then."""

import logging
from pathlib import Path

import pytest

from runnel.backends.redis.keys import RedisLayout
from runnel.core.commands import LIMIT_PREFIX
from runnel.engine.clock import RealClock
from runnel.errors import StoreError
from runnel.ports import telemetry as names
from runnel.telemetry.logs import LOGGER_NAME, LogTelemetry
from simulation.crash_points.backend import CrashPointCounter, InjectedFault
from simulation.crash_points.incarnation import StallTolerantClock
from simulation.crash_points.journal import (
    CUT_OFF_MESSAGE,
    JournalFile,
    RunJournal,
    WarningRecorder,
)
from simulation.crash_points.redis import EXECUTION_ID, PARTITIONS


class Calls:
    def __init__(self) -> None:
        self.made: list[str] = []

    async def one(self) -> str:
        self.made.append("one")
        return "answer"


@pytest.mark.parametrize(
    ("at", "moment", "made"),
    [(1, "before one", []), (2, "after one", ["one"])],
)
async def test_a_call_fails_before_it_is_made_or_after_it_was_done(
    tmp_path: Path, at: int, moment: str, made: list[str]
) -> None:
    diary, calls = RunJournal(tmp_path), Calls()
    moments = CrashPointCounter(diary, InjectedFault(point=at, kills_process=False))

    with pytest.raises(StoreError, match=f"{CUT_OFF_MESSAGE}: {moment}"):
        await moments.run_call("one", calls.one)

    assert calls.made == made
    assert diary.read(JournalFile.POINTS) == [moment]


async def test_a_call_that_only_reads_has_one_moment(tmp_path: Path) -> None:
    diary = RunJournal(tmp_path)
    moments = CrashPointCounter(diary, InjectedFault(point=2, kills_process=False))

    answer = await moments.run_call("one", Calls().one, only_reads=True)
    with pytest.raises(StoreError, match=f"{CUT_OFF_MESSAGE}: before one"):
        await moments.run_call("one", Calls().one, only_reads=True)

    assert (answer, moments.calls, moments.points) == ("answer", 2, 2)


async def test_no_call_fails_once_the_process_has_nothing_more_to_do(tmp_path: Path) -> None:
    diary = RunJournal(tmp_path)
    moments = CrashPointCounter(diary, InjectedFault(point=1, kills_process=False))

    moments.disable()

    assert await moments.run_call("one", Calls().one) == "answer"
    assert moments.points == 0


@pytest.mark.parametrize(
    ("name", "fields", "is_noted"),
    [
        (names.WORKER_DEAD, {"worker": "other", "lost": 1}, False),
        (names.WORKER_DEAD, {"worker": "own", "lost": 1}, True),
        (names.STORE_FAILED, {"error": f"{CUT_OFF_MESSAGE}: before one"}, False),
        (names.STORE_FAILED, {"error": "of another kind"}, True),
    ],
)
def test_only_what_a_disturbance_leads_to_is_expected(
    tmp_path: Path, name: str, fields: dict[str, object], is_noted: bool
) -> None:
    diary = RunJournal(tmp_path)
    notes = WarningRecorder(diary, "own")
    logger = logging.getLogger(LOGGER_NAME)

    logger.addHandler(notes)
    try:
        LogTelemetry().event(name, **fields)
    finally:
        logger.removeHandler(notes)

    line = " ".join([name, *(f"{key}={value}" for key, value in fields.items())])
    assert diary.read(JournalFile.WARNINGS) == ([line] if is_noted else [])


def test_the_execution_of_a_sweep_and_its_key_live_in_two_partitions() -> None:
    layout = RedisLayout(PARTITIONS)

    assert layout.route(EXECUTION_ID) != layout.route(f"{LIMIT_PREFIX}k")


def test_time_in_which_a_process_was_held_up_is_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 100.01, 105.0, 105.01])
    monkeypatch.setattr(RealClock, "monotonic", lambda _self: next(times))
    clock = StallTolerantClock(step_s_max=0.03)

    passed = [round(clock.monotonic(), 3) for _ in range(3)]

    assert passed == [0.01, 0.04, 0.05]
