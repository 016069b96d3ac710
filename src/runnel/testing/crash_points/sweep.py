"""Every crash point of a scenario, one after the other."""

import asyncio
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from runnel.testing.crash_points.crashing_backend import CRASHED
from runnel.testing.crash_points.diary import About, Diary
from runnel.testing.crash_points.forking import ENDED, in_child
from runnel.testing.crash_points.lives import begin, resume
from runnel.testing.crash_points.scenario import Scenario
from runnel.testing.crash_points.snapshot import Snapshot, read_snapshots
from runnel.testing.crash_points.verdict import problems_of

DEADLINE_S = 20.0
# A broken engine breaks everywhere: the first few places tell enough.
BAD_POINTS_MAX = 3
EARLY_ENDS_MAX = 3
# They can't be copied, and nobody listens any more.
_SOCKETS = shutil.ignore_patterns("*.sock")


class Life(Protocol):
    def __call__(
        self, scenario: Scenario, diary: Diary, *, crash_at: int | None
    ) -> Coroutine[Any, Any, None]: ...


@dataclass(slots=True, kw_only=True)
class Report:
    """`calls` to the store in an undisturbed life, and at how many `points` of it it was ended."""

    name: str
    calls: int = 0
    points: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return self.points > 0 and not self.problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """`deadline_s` is how long one process may take before it counts as hanging."""

    deadline_s: float = DEADLINE_S
    bad_points_max: int = BAD_POINTS_MAX


PATIENT = Patience()


def sweep(scenario: Scenario, patience: Patience = PATIENT) -> Report:
    """Ends the process that begins the execution at each of its moments."""
    report, undisturbed, _ = _measure(scenario, patience)
    with _folder() as start:
        if undisturbed is not None:
            _Sweep(scenario, begin, patience, undisturbed, report).run(start)
    return report


def sweep_resume(scenario: Scenario, patience: Patience = PATIENT, *, after: float) -> Report:
    """The first process ends `after` this share of its moments, the second at each of its own."""
    report, undisturbed, moments = _measure(scenario, patience)
    with _folder() as start:
        if undisturbed is not None:
            first_at = max(1, round(after * moments))
            report.name += f", resumed after {first_at}"
            code = _run(begin, scenario, Diary(Path(start)), patience, crash_at=first_at)
            if code != CRASHED:
                report.problems.append(f"the first process never came to moment {first_at}")
                return report
            _Sweep(scenario, resume, patience, undisturbed, report).run(start)
    return report


def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="runnel-")


def _measure(scenario: Scenario, patience: Patience) -> tuple[Report, Snapshot | None, int]:
    """The end of an undisturbed run, and how many moments it has; None when it goes wrong."""
    report = Report(name=scenario.name)
    with _folder() as folder:
        diary = Diary(Path(folder))
        code = _run(begin, scenario, diary, patience)
        report.problems += _failure(code, diary)
        if code != ENDED:
            return report, None, 0
        undisturbed = read_snapshots(diary)[-1]
        _, moments = _counted(diary)
    report.problems += problems_of(undisturbed, crashes=(), undisturbed=undisturbed)
    return report, undisturbed, moments


class _Sweep:
    def __init__(
        self,
        scenario: Scenario,
        life: Life,
        patience: Patience,
        undisturbed: Snapshot,
        report: Report,
    ) -> None:
        self._scenario = scenario
        self._life = life
        self._patience = patience
        self._undisturbed = undisturbed
        self._report = report

    def run(self, start: str) -> None:
        """Lives in copies of the folder `start`, until they end before the moment meant for them.

        Several in a row, because where timers are, a life may have a few moments less than the
        one before.
        """
        bad_points = early_ends = 0
        for at in count(1):
            with _folder() as folder:
                shutil.copytree(start, folder, ignore=_SOCKETS, dirs_exist_ok=True)
                is_reached, is_good = self._try(Diary(Path(folder)), at)
            bad_points += not is_good
            early_ends = 0 if is_reached else early_ends + 1
            if early_ends == EARLY_ENDS_MAX or bad_points >= self._patience.bad_points_max:
                return

    def _try(self, diary: Diary, at: int) -> tuple[bool, bool]:
        """Whether the life got as far as `at`, and whether all was well in the end."""
        code = _run(self._life, self._scenario, diary, self._patience, crash_at=at)
        is_reached = code != ENDED
        if is_reached:
            self._report.points += 1
        else:
            self._report.calls = max(self._report.calls, _counted(diary)[0])
        problems = self._aftermath(diary, code)
        place = f"point {at}, {' then '.join(diary.read(About.DEATH)) or 'not reached'}"
        self._report.problems += [f"{place}: {problem}" for problem in problems]
        return is_reached, not problems

    def _aftermath(self, diary: Diary, code: int) -> list[str]:
        if code == CRASHED:
            code = _run(resume, self._scenario, diary, self._patience)
        failure = _failure(code, diary)
        if code != ENDED:
            return failure
        *crashes, end = read_snapshots(diary)
        return failure + problems_of(end, crashes=crashes, undisturbed=self._undisturbed)


def _run(
    life: Life, scenario: Scenario, diary: Diary, patience: Patience, *, crash_at: int | None = None
) -> int:
    return in_child(
        lambda: asyncio.run(life(scenario, diary, crash_at=crash_at)),
        diary,
        deadline_s=patience.deadline_s,
    )


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
