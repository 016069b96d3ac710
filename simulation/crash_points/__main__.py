"""The command `python -m simulation.crash_points module:function [NAME ...] [--redis] [...]`.

The function returns the scenarios. The command prints a line for each scenario and each problem,
and exits with 1 if there is a problem.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from runnel.app.private_servers.redis import RedisServer
from runnel.authoring.functions import import_function
from runnel.core.validation import build_graph
from runnel.engine.clock import RealClock
from simulation.crash_points.scenario import Scenario
from simulation.crash_points.storage import CrashPointStorage, DataDirStorage
from simulation.crash_points.sweep import (
    BAD_POINTS_MAX,
    DEADLINE_S,
    SweepOptions,
    SweepReport,
    sweep,
    sweep_failed_calls,
    sweep_resume,
)

ROW_FORMAT = "{:<36} {:>6} {:>7} {:>8}  {}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _build_parser()
    parsed = parser.parse_intermixed_args(arguments)
    if parsed.failed_calls and not (parsed.redis or parsed.redis_url):
        parser.error("--failed-calls needs a store that can be unreachable: add --redis")
    scenarios: Sequence[Scenario] = import_function(parsed.scenarios)()
    chosen = [
        scenario for scenario in scenarios if not parsed.names or scenario.name in parsed.names
    ]
    for scenario in chosen:
        build_graph(scenario.workflow)  # imports template modules once, before the forks
    with ExitStack() as stack:
        options = SweepOptions(
            storage=_open_storage(parsed, stack),
            deadline_s=parsed.deadline,
            bad_points_max=parsed.bad_points,
            stride=parsed.every,
        )
        gc.freeze()  # the children share these objects and need not scan them
        _print(ROW_FORMAT.format("scenario", "calls", "points", "seconds", "result"))
        outcomes = [
            _run_sweep(partial(_choose_sweep(parsed), options=options), scenario)
            for scenario in chosen
        ]
    return 0 if outcomes and all(outcomes) else 1


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simulation.crash_points")
    parser.add_argument(
        "scenarios", metavar="module:function", help="a function that returns the scenarios"
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="run only these scenarios")
    storage = parser.add_mutually_exclusive_group()
    storage.add_argument(
        "--redis", action="store_true", help="use a private Redis server instead of SQLite"
    )
    storage.add_argument(
        "--redis-url", metavar="URL", help="use this Redis server, with separate keys"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--resume",
        metavar="SHARE",
        type=float,
        help="end the resuming process; the first one ends at this share of its points (0.5: half)",
    )
    kind.add_argument(
        "--failed-calls",
        action="store_true",
        help="end no process: fail one call, either not made or without an answer",
    )
    parser.add_argument(
        "--every",
        metavar="N",
        type=int,
        default=1,
        help="run only every N-th point; use an odd N to cover both sides of calls",
    )
    parser.add_argument(
        "--deadline",
        metavar="SECONDS",
        type=float,
        default=DEADLINE_S,
        help="a process that takes longer counts as hanging (%(default)g)",
    )
    parser.add_argument(
        "--bad-points",
        metavar="N",
        type=int,
        default=BAD_POINTS_MAX,
        help="stop a sweep after this number of failed points (%(default)d)",
    )
    return parser


def _open_storage(parsed: argparse.Namespace, stack: ExitStack) -> CrashPointStorage:
    """Opens the storage that the options name.

    A private server is stopped when `stack` is closed.
    """
    url = parsed.redis_url
    if parsed.redis:
        url = stack.enter_context(RedisServer()).url
    if url is None:
        return DataDirStorage()
    from simulation.crash_points.redis import RedisKeyStorage

    return RedisKeyStorage(url)


def _choose_sweep(parsed: argparse.Namespace) -> Callable[..., SweepReport]:
    if parsed.failed_calls:
        return sweep_failed_calls
    return sweep if parsed.resume is None else partial(sweep_resume, after=parsed.resume)


def _run_sweep(run: Callable[[Scenario], SweepReport], scenario: Scenario) -> bool:
    clock = RealClock()
    started_at = clock.monotonic()
    report = run(scenario)
    seconds = f"{clock.monotonic() - started_at:.1f}"
    result = "all equal" if report.is_good else "NOT EQUAL"
    _print(ROW_FORMAT.format(report.name, report.calls, report.points, seconds, result))
    for problem in report.problems:
        _print(f"  {problem}\n")
    return report.is_good


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
