"""`python -m runnel.testing.crash_points module:function [NAME ...] [--resume SHARE]`

The function returns the scenarios. Prints a line for each, and one for every problem; the exit
code is 1 when there is any.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from functools import partial

from runnel.authoring.locate import locate
from runnel.core.validation import build_graph
from runnel.runtime.clock import RealClock
from runnel.testing.crash_points.scenario import Scenario
from runnel.testing.crash_points.sweep import (
    BAD_POINTS_MAX,
    DEADLINE_S,
    Patience,
    Report,
    sweep,
    sweep_resume,
)

ROW = "{:<36} {:>6} {:>7} {:>8}  {}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_intermixed_args(arguments)
    scenarios: Sequence[Scenario] = locate(parsed.scenarios)()
    wanted = [each for each in scenarios if not parsed.names or each.name in parsed.names]
    patience = Patience(deadline_s=parsed.deadline, bad_points_max=parsed.bad_points)
    run = sweep if parsed.resume is None else partial(sweep_resume, after=parsed.resume)
    for scenario in wanted:
        build_graph(scenario.workflow)  # imports what templates need, once for all children
    gc.freeze()  # the children share what is here, and need not look at it again
    _say(ROW.format("scenario", "calls", "points", "seconds", "ends"))
    outcomes = [_swept(partial(run, patience=patience), scenario) for scenario in wanted]
    return 0 if outcomes and all(outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runnel.testing.crash_points")
    parser.add_argument("scenarios", metavar="module:function", help="returns the scenarios")
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these of them")
    parser.add_argument(
        "--resume",
        metavar="SHARE",
        type=float,
        help="end the process that resumes, after the first has come so far (0.5: half-way)",
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=float,
        default=DEADLINE_S,
        help="a process that takes longer hangs (%(default)g)",
    )
    parser.add_argument(
        "--bad-points",
        metavar="N",
        type=int,
        default=BAD_POINTS_MAX,
        help="stop a sweep after so many that end otherwise (%(default)d)",
    )
    return parser


def _swept(run: Callable[[Scenario], Report], scenario: Scenario) -> bool:
    clock = RealClock()
    begun = clock.monotonic()
    report = run(scenario)
    seconds = f"{clock.monotonic() - begun:.1f}"
    ends = "all equal" if report.is_good else "NOT EQUAL"
    _say(ROW.format(report.name, report.calls, report.points, seconds, ends))
    for problem in report.problems:
        _say(f"  {problem}\n")
    return report.is_good


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
