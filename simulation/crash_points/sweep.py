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

from simulation.crash_points.backend import CRASHED, UNDISTURBED, Disturbance
from simulation.crash_points.incarnation import ENDED, begin, in_child, resume
from simulation.crash_points.journal import About, Diary
from simulation.crash_points.scenario import Scenario
from simulation.crash_points.storage import DataDirs, Storage
from simulation.crash_points.verdict import Snapshot, problems_of, read_snapshots

DEADLINE_S = 20.0
# A broken engine breaks everywhere: the first few places tell enough.
BAD_POINTS_MAX = 3
EARLY_ENDS_MAX = 3
# They can't be copied, and nobody listens any more.
_SOCKETS = shutil.ignore_patterns("*.sock")


class Life(Protocol):
    def __call__(
        self, scenario: Scenario, storage: Storage, diary: Diary, disturbance: Disturbance
    ) -> Coroutine[Any, Any, None]: ...


@dataclass(slots=True, kw_only=True)
class Report:
    """`calls` to the store in an undisturbed life, and at how many `points` it was disturbed."""

    name: str
    calls: int = 0
    points: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.points > 0 and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """`deadline_s` is how long one process may take before it counts as hanging.

    Only each `every`-th moment is tried: an even number would leave out one side of the calls.
    """

    storage: Storage = field(default_factory=DataDirs)
    deadline_s: float = DEADLINE_S
    bad_points_max: int = BAD_POINTS_MAX
    every: int = 1


USUAL = Means()


def sweep(scenario: Scenario, means: Means = USUAL) -> Report:
    """Ends the process that begins the execution at each of its moments."""
    return _Sweep(scenario, means, begin).run()


def sweep_failed_calls(scenario: Scenario, means: Means = USUAL) -> Report:
    """Lets one call of the process fail instead, not made or made without an answer.

    It goes on by itself: no other one comes after it. Only for storage that can be out of reach.
    """
    return _Sweep(scenario, means, begin, is_deadly=False).run()


def sweep_resume(scenario: Scenario, means: Means = USUAL, *, after: float) -> Report:
    """The first process ends `after` this share of its moments, the second at each of its own."""
    return _Sweep(scenario, means, resume).run(after=after)


class _Sweep:
    def __init__(
        self, scenario: Scenario, means: Means, life: Life, *, is_deadly: bool = True
    ) -> None:
        self._scenario = scenario
        self._means = means
        self._life = life
        self._is_deadly = is_deadly
        self._report = Report(name=scenario.name)

    def run(self, *, after: float | None = None) -> Report:
        measured = self._measure()
        if measured is not None:
            undisturbed, moments = measured
            with self._place() as start:
                if after is None or self._end_first(start, max(1, round(after * moments))):
                    self._sweep(start, undisturbed)
        return self._report

    def _measure(self) -> tuple[Snapshot, int] | None:
        """The end of an undisturbed run, and how many moments it has; None when it goes wrong."""
        with self._place() as diary:
            code = self._live(begin, diary, UNDISTURBED)
            self._report.problems += _failure(code, diary)
            if code != ENDED:
                return None
            undisturbed = read_snapshots(diary)[-1]
            _, moments = _counted(diary)
        self._report.problems += problems_of(undisturbed, crashes=(), undisturbed=undisturbed)
        return undisturbed, moments

    def _end_first(self, diary: Diary, at: int) -> bool:
        self._report.name += f", resumed after {at}"
        is_ended = self._live(begin, diary, Disturbance(at=at)) == CRASHED
        if not is_ended:
            self._report.problems.append(f"the first process never came to moment {at}")
        return is_ended

    def _sweep(self, start: Diary, undisturbed: Snapshot) -> None:
        """Lives in copies of `start`, until they end before the moment meant for them.

        Several in a row, because where timers are, a life may have a few moments less than the
        one before.
        """
        bad_points = early_ends = 0
        for at in count(1, self._means.every):
            with self._place() as diary:
                shutil.copytree(start.folder, diary.folder, ignore=_SOCKETS, dirs_exist_ok=True)
                self._means.storage.copy(start, diary)
                is_reached, is_good = self._try(diary, at, undisturbed)
            bad_points += not is_good
            early_ends = 0 if is_reached else early_ends + 1
            if early_ends == EARLY_ENDS_MAX or bad_points >= self._means.bad_points_max:
                return

    def _try(self, diary: Diary, at: int, undisturbed: Snapshot) -> tuple[bool, bool]:
        """Whether the life got as far as `at`, and whether all was well in the end."""
        before = diary.read(About.MOMENT)
        code = self._live(self._life, diary, Disturbance(at=at, is_deadly=self._is_deadly))
        moments = diary.read(About.MOMENT)
        is_reached = len(moments) > len(before)
        self._report.points += is_reached
        if not is_reached and code == ENDED:
            self._report.calls = max(self._report.calls, _counted(diary)[0])
        problems = self._aftermath(diary, code, undisturbed)
        place = f"point {at}, {' then '.join(moments) or 'not reached'}"
        self._report.problems += [f"{place}: {problem}" for problem in problems]
        return is_reached, not problems

    def _aftermath(self, diary: Diary, code: int, undisturbed: Snapshot) -> list[str]:
        if code == CRASHED:
            code = self._live(resume, diary, UNDISTURBED)
        failure = _failure(code, diary)
        if code != ENDED:
            return failure
        *crashes, end = read_snapshots(diary)
        return failure + problems_of(end, crashes=crashes, undisturbed=undisturbed)

    def _live(self, life: Life, diary: Diary, disturbance: Disturbance) -> int:
        return in_child(
            lambda: asyncio.run(life(self._scenario, self._means.storage, diary, disturbance)),
            diary,
            deadline_s=self._means.deadline_s,
        )

    @contextmanager
    def _place(self) -> Iterator[Diary]:
        """For one point: what it leaves is removed."""
        with tempfile.TemporaryDirectory(prefix="runnel-") as folder:
            diary = Diary(Path(folder))
            try:
                yield diary
            finally:
                self._means.storage.remove(diary)


def _counted(diary: Diary) -> tuple[int, int]:
    """Calls and moments of the last life that came to its end."""
    calls, moments = diary.read(About.COUNT)[-1].split()
    return int(calls), int(moments)


def _failure(code: int, diary: Diary) -> list[str]:
    warnings = [f"warned: {line}" for line in diary.read(About.WARNINGS)]
    if code == ENDED:
        return warnings
    hangs = code == -signal.SIGALRM
    return ["a process hangs" if hangs else f"a process ended with {code}", *warnings]
