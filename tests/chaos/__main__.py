"""The command `python -m tests.chaos --seed 0 --executions 5000 --kills 20`.

It exits with 1 if it finds a problem. `make chaos SEED=... COUNT=...` is the short form. The faults
are kills of orchestrators and workers in turn, and each other fault once, in random order.
`--troubles` names the faults instead.
"""

import argparse
import asyncio
import random
import sys

from tests.chaos.faults import TROUBLES
from tests.chaos.run import ChaosPlan, run

KILLS = ("kill-orchestrator", "kill-worker")


def main() -> int:
    options = _options()
    plan = ChaosPlan(
        seed=options.seed,
        executions=options.executions,
        troubles=options.troubles or _troubles(options.seed, options.kills),
        concurrency=options.concurrency,
        lease_s=options.lease,
        pause_s=options.pause,
        deadline_s=options.deadline,
    )
    sys.stdout.write(f"seed {plan.seed}: {', '.join(plan.troubles)}\n")
    sys.stdout.flush()
    report = asyncio.run(run(plan))
    sys.stdout.write(report.text() + "\n")
    return 1 if report.problems else 0


def _troubles(seed: int, kills: int) -> list[str]:
    chosen = [KILLS[number % 2] for number in range(kills)]
    chosen += [name for name in TROUBLES if name not in KILLS]
    random.Random(seed).shuffle(chosen)
    return chosen


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--executions", type=int, default=5_000)
    parser.add_argument(
        "--kills", type=int, default=10, help="number of kills of orchestrators and workers"
    )
    parser.add_argument(
        "--troubles", nargs="*", choices=list(TROUBLES), help="inject only these faults"
    )
    parser.add_argument("--concurrency", type=int, default=8, help="slots of each worker")
    parser.add_argument(
        "--lease", type=float, default=3.0, help="seconds until a silent process counts as dead"
    )
    parser.add_argument("--pause", type=float, default=3.0, help="average seconds between faults")
    parser.add_argument(
        "--deadline",
        type=float,
        default=180.0,
        help="seconds for all executions to end after the last fault",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
