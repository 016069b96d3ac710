"""The command `python -m simulation --seed 0 --count 1000`, which exits with 1 if a
check failed.
"""

import argparse
import os
import signal
import sys

from simulation.campaign import CampaignResult, run_campaign

PROGRESS_INTERVAL_SEEDS = 1_000


def main() -> int:
    options = _parse_options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also ends the child processes
    outcome = CampaignResult()
    for part in run_campaign(options.seed, options.count, processes=options.processes):
        for finding in part.findings:
            print(finding, flush=True)
        for reason in part.inconclusive_seeds:
            print(reason, flush=True)
        outcome.add(part)
        if outcome.seeds % PROGRESS_INTERVAL_SEEDS == 0 and outcome.seeds < options.count:
            print(outcome.format_summary(), flush=True)
    for name, count in outcome.tally.counts().items():
        print(f"  {name.replace('_', ' '):24} {count:>12,}")
    for counter in (outcome.tally.features, outcome.tally.faults):
        for name, count in sorted(counter.items()):
            print(f"  {name:24} {count:>12,}")
    rare_features = outcome.find_rare_features()
    for problem in rare_features:
        print(f"too rare: {problem}")
    print(outcome.format_summary())
    return 1 if outcome.findings or outcome.inconclusive_seeds or rare_features else 0


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=_parse_positive, default=1_000, help="the number of seeds")
    parser.add_argument("--processes", type=_parse_positive, default=os.cpu_count() or 1)
    return parser.parse_args()


def _parse_positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
