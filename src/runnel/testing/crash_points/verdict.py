"""What a crash must not change, and how it is told apart from what it may."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from runnel.core.json_types import Json
from runnel.testing.crash_points.snapshot import ROOT, Snapshot


def problems_of(end: Snapshot, *, crashes: Sequence[Snapshot], undisturbed: Snapshot) -> list[str]:
    """One sentence each; `crashes` are what the data dir held when each process had ended."""
    return [
        *_differences("executions", undisturbed.executions, end.executions),
        *_differences("dead letters", undisturbed.dead_letters, end.dead_letters),
        *(f"left over: {count} {name}" for name, count in end.left_over.items()),
        *_repeated_attempts(end.runs),
        *(problem for crash in crashes for problem in _run_again(crash, end)),
        *_wrong_counts(undisturbed, end, crashes=len(crashes)),
    ]


def _differences(path: str, expected: Json, found: Json) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            yield from _differences(f"{path}.{key}", expected.get(key), found.get(key))
    elif expected != found:
        yield f"{path}: expected {expected}, found {found}"


def _repeated_attempts(runs: Sequence[str]) -> Iterator[str]:
    for run, count in Counter(runs).items():
        if count > 1:
            yield f"one attempt ran {count} times: {run}"


def _run_again(crash: Snapshot, end: Snapshot) -> Iterator[str]:
    """What was settled in the store when the process ended is not run by its successor."""
    before, after = _by_key(crash.runs), _by_key(end.runs)
    for key in crash.settled:
        if after[key] > before[key]:
            yield f"{key} was settled when the process ended, and ran again"


def _wrong_counts(undisturbed: Snapshot, end: Snapshot, *, crashes: int) -> Iterator[str]:
    """A crash costs each node that runs at all one more run at most; none is left out.

    Attempts that were issued and never began count too: a node that fails twice before it
    succeeds may run less often than in an undisturbed run.
    """
    expected = _by_key(map(_without_root, undisturbed.runs))
    found = _by_key(map(_without_root, end.runs))
    for key in sorted(expected.keys() | found.keys()):
        runs_max = expected[key] + crashes if expected[key] else 0
        if found[key] > runs_max:
            yield f"{key} ran {found[key]} times, {expected[key]} without a crash"
        if found[key] == 0:
            yield f"{key} never ran"


def _without_root(run: str) -> str:
    end_of_root = min(run.find(mark) for mark in "./" if mark in run)
    return ROOT + run[end_of_root:]


def _by_key(runs: Iterable[str]) -> Counter[str]:
    return Counter(run.rpartition(" ")[0] for run in runs)
