"""Runs every crash point of a scenario, one after the other."""

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
# The sweep stops after this number of failed crash points, because a broken engine fails at many.
BAD_POINTS_MAX = 3
EARLY_ENDS_MAX = 3
# Sockets are not copied: no process listens on them.
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
    """The result of a sweep: the number of `calls` of an undisturbed run and of tried crash
    `points`.
    """

    name: str
    calls: int = 0
    points: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.points > 0 and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options of a sweep.

    A process that takes longer than `deadline_s` counts as hanging. Only every `stride`-th crash
    point is tried. An even number would skip either all points before calls or all points after
    calls.
    """

    storage: CrashPointStorage = field(default_factory=DataDirStorage)
    deadline_s: float = DEADLINE_S
    bad_points_max: int = BAD_POINTS_MAX
    stride: int = 1


DEFAULT_OPTIONS = SweepOptions()


def sweep(scenario: Scenario, options: SweepOptions = DEFAULT_OPTIONS) -> SweepReport:
    """Runs the scenario once per crash point, and kills the process that starts the execution
    there.
    """
    return _PointSweep(scenario, options, run_first_incarnation).run()


def sweep_failed_calls(scenario: Scenario, options: SweepOptions = DEFAULT_OPTIONS) -> SweepReport:
    """Runs the scenario once per crash point, and makes one call fail there.

    The call is not made, or its response is lost. The process must continue. Use this sweep only
    for storage that can be unreachable.
    """
    return _PointSweep(scenario, options, run_first_incarnation, kills_process=False).run()


def sweep_resume(
    scenario: Scenario, options: SweepOptions = DEFAULT_OPTIONS, *, after: float
) -> SweepReport:
    """Kills the first process `after` this share of its crash points, and the second process at
    each of its own crash points.
    """
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
            undisturbed, points = measured
            with self._open_journal() as start:
                if after is None or self._crash_first(start, max(1, round(after * points))):
                    self._run_points(start, undisturbed)
        return self._report

    def _run_undisturbed(self) -> tuple[Snapshot, int] | None:
        """Returns the final snapshot of an undisturbed run and its number of crash points; None if
        the run fails.
        """
        with self._open_journal() as journal:
            code = self._run_incarnation(run_first_incarnation, journal, NO_FAULT)
            self._report.problems += _describe_failure(code, journal)
            if code != EXIT_OK:
                return None
            undisturbed = read_snapshots(journal)[-1]
            _, points = _read_counts(journal)
        self._report.problems += find_problems(undisturbed, crashes=(), undisturbed=undisturbed)
        return undisturbed, points

    def _crash_first(self, journal: RunJournal, at: int) -> bool:
        self._report.name += f", resumed after {at}"
        is_ended = (
            self._run_incarnation(run_first_incarnation, journal, InjectedFault(point=at))
            == CRASH_EXIT_CODE
        )
        if not is_ended:
            self._report.problems.append(f"the first process never reached point {at}")
        return is_ended

    def _run_points(self, start: RunJournal, undisturbed: Snapshot) -> None:
        """Runs the crash points in copies of `start`, until several runs in a row end before their
        point.

        With timers, the number of crash points differs slightly between runs. One run that ends
        early is therefore not enough to stop.
        """
        bad_points = early_ends = 0
        for at in count(1, self._options.stride):
            with self._open_journal() as journal:
                shutil.copytree(start.folder, journal.folder, ignore=_SOCKETS, dirs_exist_ok=True)
                self._options.storage.copy(start, journal)
                is_reached, is_good = self._run_point(journal, at, undisturbed)
            bad_points += not is_good
            early_ends = 0 if is_reached else early_ends + 1
            if early_ends == EARLY_ENDS_MAX or bad_points >= self._options.bad_points_max:
                return

    def _run_point(self, journal: RunJournal, at: int, undisturbed: Snapshot) -> tuple[bool, bool]:
        """Runs one crash point.

        Returns whether the process reached point `at`, and whether the result is correct.
        """
        before = journal.read(JournalFile.POINTS)
        code = self._run_incarnation(
            self._incarnation, journal, InjectedFault(point=at, kills_process=self._kills_process)
        )
        points = journal.read(JournalFile.POINTS)
        is_reached = len(points) > len(before)
        self._report.points += is_reached
        if not is_reached and code == EXIT_OK:
            self._report.calls = max(self._report.calls, _read_counts(journal)[0])
        problems = self._check_recovery(journal, code, undisturbed)
        label = f"point {at}, {' then '.join(points) or 'not reached'}"
        self._report.problems += [f"{label}: {problem}" for problem in problems]
        return is_reached, not problems

    def _check_recovery(self, journal: RunJournal, code: int, undisturbed: Snapshot) -> list[str]:
        if code == CRASH_EXIT_CODE:
            code = self._run_incarnation(run_resuming_incarnation, journal, NO_FAULT)
        failure = _describe_failure(code, journal)
        if code != EXIT_OK:
            return failure
        *crashes, end = read_snapshots(journal)
        return failure + find_problems(end, crashes=crashes, undisturbed=undisturbed)

    def _run_incarnation(
        self, incarnation: Incarnation, journal: RunJournal, fault: InjectedFault
    ) -> int:
        return run_in_child(
            lambda: asyncio.run(incarnation(self._scenario, self._options.storage, journal, fault)),
            journal,
            deadline_s=self._options.deadline_s,
        )

    @contextmanager
    def _open_journal(self) -> Iterator[RunJournal]:
        """Opens the journal of one point, and removes it with its data afterwards."""
        with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
            journal = RunJournal(Path(folder))
            try:
                yield journal
            finally:
                self._options.storage.remove(journal)


def _read_counts(journal: RunJournal) -> tuple[int, int]:
    """Returns the numbers of calls and crash points of the last process that ended regularly."""
    calls, points = journal.read(JournalFile.COUNTS)[-1].split()
    return int(calls), int(points)


def _describe_failure(code: int, journal: RunJournal) -> list[str]:
    warnings = [f"warning: {line}" for line in journal.read(JournalFile.WARNINGS)]
    if code == EXIT_OK:
        return warnings
    hangs = code == -signal.SIGALRM
    return ["a process hangs" if hangs else f"a process ended with {code}", *warnings]
