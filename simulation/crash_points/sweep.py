"""Every crash point of a scenario, one after the other."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from simulation.crash_points.backend import CRASH_EXIT_CODE, NO_FAULT, InjectedFault
from simulation.crash_points.incarnation import (
    EXIT_OK,
    run_first_incarnation,
    run_in_child,
    run_resuming_incarnation,
)
from simulation.crash_points.journal import JournalFile, RunJournal
from simulation.crash_points.scenario import Scenario
from simulation.crash_points.storage import CrashPointStorage, DataDirStorage
from simulation.crash_points.verdict import Snapshot, find_problems, read_snapshots

DEADLINE_S = 20.0
# A broken engine breaks everywhere: the first few places tell enough.
BAD_POINTS_MAX = 3
EARLY_ENDS_MAX = 3
# They can't be copied, and nobody listens any more.
_SOCKETS = shutil.ignore_patterns("*.sock")


class Incarnation(Protocol):
    def __call__(
        self,
        scenario: Scenario,
        storage: CrashPointStorage,
        journal: RunJournal,
        fault: InjectedFault,
    ) -> Coroutine[Any, Any, None]: ...


@dataclass(slots=True, kw_only=True)
class SweepReport:
    """`calls` to the store in an undisturbed life, and at how many `points` it was disturbed."""

    name: str
    calls: int = 0
    points: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.points > 0 and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """`deadline_s` is how long one process may take before it counts as hanging.

    Only each `stride`-th moment is tried: an even number would leave out one side of the calls.
    """

    storage: CrashPointStorage = field(default_factory=DataDirStorage)
    deadline_s: float = DEADLINE_S
    bad_points_max: int = BAD_POINTS_MAX
    stride: int = 1


DEFAULT_OPTIONS = SweepOptions()


def sweep(scenario: Scenario, options: SweepOptions = DEFAULT_OPTIONS) -> SweepReport:
    """Ends the process that begins the execution at each of its moments."""
    return _PointSweep(scenario, options, run_first_incarnation).run()


def sweep_failed_calls(scenario: Scenario, options: SweepOptions = DEFAULT_OPTIONS) -> SweepReport:
    """Lets one call of the process fail instead, not made or made without an answer.

    It goes on by itself: no other one comes after it. Only for storage that can be out of reach.
    """
    return _PointSweep(scenario, options, run_first_incarnation, kills_process=False).run()


def sweep_resume(
    scenario: Scenario, options: SweepOptions = DEFAULT_OPTIONS, *, after: float
) -> SweepReport:
    """The first process ends `after` this share of its moments, the second at each of its own."""
    return _PointSweep(scenario, options, run_resuming_incarnation).run(after=after)


class _PointSweep:
    def __init__(
        self,
        scenario: Scenario,
        options: SweepOptions,
        incarnation: Incarnation,
        *,
        kills_process: bool = True,
    ) -> None:
        self._scenario = scenario
        self._options = options
        self._incarnation = incarnation
        self._kills_process = kills_process
        self._report = SweepReport(name=scenario.name)

    def run(self, *, after: float | None = None) -> SweepReport:
        measured = self._run_undisturbed()
        if measured is not None:
            undisturbed, moments = measured
            with self._open_journal() as start:
                if after is None or self._crash_first(start, max(1, round(after * moments))):
                    self._run_points(start, undisturbed)
        return self._report

    def _run_undisturbed(self) -> tuple[Snapshot, int] | None:
        """The end of an undisturbed run, and how many moments it has; None when it goes wrong."""
        with self._open_journal() as diary:
            code = self._run_incarnation(run_first_incarnation, diary, NO_FAULT)
            self._report.problems += _describe_failure(code, diary)
            if code != EXIT_OK:
                return None
            undisturbed = read_snapshots(diary)[-1]
            _, moments = _read_counts(diary)
        self._report.problems += find_problems(undisturbed, crashes=(), undisturbed=undisturbed)
        return undisturbed, moments

    def _crash_first(self, diary: RunJournal, at: int) -> bool:
        self._report.name += f", resumed after {at}"
        is_ended = (
            self._run_incarnation(run_first_incarnation, diary, InjectedFault(point=at))
            == CRASH_EXIT_CODE
        )
        if not is_ended:
            self._report.problems.append(f"the first process never came to moment {at}")
        return is_ended

    def _run_points(self, start: RunJournal, undisturbed: Snapshot) -> None:
        """Lives in copies of `start`, until they end before the moment meant for them.

        Several in a row, because where timers are, a life may have a few moments less than the
        one before.
        """
        bad_points = early_ends = 0
        for at in count(1, self._options.stride):
            with self._open_journal() as diary:
                shutil.copytree(start.folder, diary.folder, ignore=_SOCKETS, dirs_exist_ok=True)
                self._options.storage.copy(start, diary)
                is_reached, is_good = self._run_point(diary, at, undisturbed)
            bad_points += not is_good
            early_ends = 0 if is_reached else early_ends + 1
            if early_ends == EARLY_ENDS_MAX or bad_points >= self._options.bad_points_max:
                return

    def _run_point(self, diary: RunJournal, at: int, undisturbed: Snapshot) -> tuple[bool, bool]:
        """Whether the life got as far as `at`, and whether all was well in the end."""
        before = diary.read(JournalFile.POINTS)
        code = self._run_incarnation(
            self._incarnation, diary, InjectedFault(point=at, kills_process=self._kills_process)
        )
        moments = diary.read(JournalFile.POINTS)
        is_reached = len(moments) > len(before)
        self._report.points += is_reached
        if not is_reached and code == EXIT_OK:
            self._report.calls = max(self._report.calls, _read_counts(diary)[0])
        problems = self._check_recovery(diary, code, undisturbed)
        place = f"point {at}, {' then '.join(moments) or 'not reached'}"
        self._report.problems += [f"{place}: {problem}" for problem in problems]
        return is_reached, not problems

    def _check_recovery(self, diary: RunJournal, code: int, undisturbed: Snapshot) -> list[str]:
        if code == CRASH_EXIT_CODE:
            code = self._run_incarnation(run_resuming_incarnation, diary, NO_FAULT)
        failure = _describe_failure(code, diary)
        if code != EXIT_OK:
            return failure
        *crashes, end = read_snapshots(diary)
        return failure + find_problems(end, crashes=crashes, undisturbed=undisturbed)

    def _run_incarnation(
        self, incarnation: Incarnation, diary: RunJournal, disturbance: InjectedFault
    ) -> int:
        return run_in_child(
            lambda: asyncio.run(
                incarnation(self._scenario, self._options.storage, diary, disturbance)
            ),
            diary,
            deadline_s=self._options.deadline_s,
        )

    @contextmanager
    def _open_journal(self) -> Iterator[RunJournal]:
        """For one point: what it leaves is removed."""
        with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
            diary = RunJournal(Path(folder))
            try:
                yield diary
            finally:
                self._options.storage.remove(diary)


def _read_counts(journal: RunJournal) -> tuple[int, int]:
    """Calls and moments of the last life that came to its end."""
    calls, moments = journal.read(JournalFile.COUNTS)[-1].split()
    return int(calls), int(moments)


def _describe_failure(code: int, journal: RunJournal) -> list[str]:
    warnings = [f"warned: {line}" for line in journal.read(JournalFile.WARNINGS)]
    if code == EXIT_OK:
        return warnings
    hangs = code == -signal.SIGALRM
    return ["a process hangs" if hangs else f"a process ended with {code}", *warnings]
