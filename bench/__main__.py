"""Measures everything and writes results.json and results.md: `python -m bench`.

Each job runs in a process of its own, and what it found is written at once: a run that is ended
in the middle has what it had.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.job import Job
from bench.jobs import jobs
from bench.peer_jobs import described_peers
from bench.results import Results
from bench.tables import markdown
from bench.targets import judged
from runnel.benchmarks.figures import Figures
from runnel.benchmarks.machine import described_machine
from runnel.benchmarks.report import PRIVATE_POSTGRES, PRIVATE_REDIS, label, number

FOLDER = Path(__file__).parent
REPETITIONS = 3
JOB_LIMIT_S = 900.0
MINUTES = 120


class JobFailedError(Exception):
    """Its last words."""


def main() -> None:
    chosen = _parser().parse_args()
    if chosen.job is not None:
        found = next(each for each in jobs() if each.name == chosen.job)
        print(json.dumps(found.run()))
        return
    wanted = [job for job in jobs() if job.has(chosen.only) and (job.is_short or not chosen.quick)]
    if not wanted:
        sys.exit(f"no job has all of these words: {' '.join(chosen.only)}")
    if chosen.list:
        print("\n".join(job.name for job in wanted))
        return
    is_part = bool(chosen.only) or chosen.quick
    path = FOLDER / ("partial.json" if is_part else "results.json")
    repetitions = chosen.repetitions or (1 if chosen.quick else REPETITIONS)
    results = Results(
        machine=described_machine(), settings=_settings(repetitions), peers=described_peers()
    )
    if not results.peers:
        print("peers are not measured: there is no bench/peers", file=sys.stderr)
    _measure(wanted, results, path, repetitions=repetitions, minutes=chosen.minutes)
    print(path.with_suffix(".md").read_text(encoding="utf-8"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="diamonds, chains and fans, once")
    parser.add_argument("--only", nargs="+", default=[], help="jobs whose name has all these words")
    parser.add_argument("--repetitions", type=int, help=f"{REPETITIONS}, or 1 with --quick")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="then no job is begun")
    parser.add_argument("--list", action="store_true", help="name the jobs, and do nothing")
    parser.add_argument("--job", help="run this job once and print its figures as JSON")
    return parser


def _measure(
    wanted: list[Job], results: Results, path: Path, *, repetitions: int, minutes: float
) -> None:
    """All jobs once, then all again: what disturbs the machine for a while disturbs each a bit."""
    end = time.monotonic() + 60 * minutes
    rounds = [job for turn in range(repetitions) for job in wanted if not (job.is_once and turn)]
    for number_, job in enumerate(rounds, start=1):
        print(f"[{number_}/{len(rounds)}] {job.name}", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            results.failed.setdefault(job.name, f"not begun: {minutes:g} minutes were over")
            continue
        try:
            found = _run(job)
        except JobFailedError as error:
            results.failed[job.name] = str(error)
            print(f"  failed: {error}", file=sys.stderr)
        else:
            results.add(job.name, found)
            for name, value in found.items():
                print(f"  {label(name):40} {number(value):>12}", file=sys.stderr)
        results.is_complete = number_ == len(rounds)
        _write(results, path)


def _run(job: Job) -> Figures:
    """All that it started ends with it, also when it takes too long."""
    command = [sys.executable, "-m", "bench", "--job", job.name]
    try:
        done = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            cwd=FOLDER.parent,
            timeout=JOB_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise JobFailedError(f"took more than {JOB_LIMIT_S:g} s") from error
    if done.returncode:
        raise JobFailedError((done.stderr.strip().splitlines() or ["without a word"])[-1])
    found: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _write(results: Results, path: Path) -> None:
    targets = judged(results)
    results.write(path, targets)
    path.with_suffix(".md").write_text(markdown(results, targets), encoding="utf-8")


def _settings(repetitions: int) -> dict[str, str | int]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repetitions": repetitions,
        "redis": PRIVATE_REDIS,
        "postgres": PRIVATE_POSTGRES,
    }


if __name__ == "__main__":
    main()
