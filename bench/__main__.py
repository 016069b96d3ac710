"""Measures everything and writes results.json and results.md: `python -m bench`.

Each job runs in a separate process. The results are written after each job, so an interrupted run
keeps its results.
"""

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from bench.job import BenchmarkJob, run_child
from bench.jobs import list_jobs
from bench.numbers import parse_positive
from bench.peer_jobs import describe_peers
from bench.results import BenchmarkResults
from bench.tables import format_markdown
from bench.targets import judge_targets
from runnel.app.private_servers.binaries import (
    POSTGRES,
    REDIS,
    ServerProduct,
    find_binary,
    get_unprivileged_user,
)
from runnel.bench.figures import Figures
from runnel.bench.machine import describe_machine
from runnel.bench.report import PRIVATE_POSTGRES, PRIVATE_REDIS, format_label, format_number
from runnel.errors import NoServerBinaryError

FOLDER = Path(__file__).parent
REPETITIONS = 3
JOB_TIMEOUT_S = 900.0
MINUTES_MAX = 120
EXIT_INTERRUPTED = 130

now = time.monotonic


class JobFailedError(Exception):
    """A job failed; the message is the last line of its output."""


def main(arguments: list[str] | None = None) -> None:
    chosen = _build_parser().parse_args(arguments)
    if chosen.job is not None:
        job_to_run = next((job for job in list_jobs() if job.name == chosen.job), None)
        if job_to_run is None:
            sys.exit(f"no job is called '{chosen.job}': see --list")
        print(json.dumps(job_to_run.run()))
        return
    jobs_to_run = [
        job
        for job in list_jobs()
        if job.has_words(chosen.only) and (job.is_short or not chosen.quick)
    ]
    if not jobs_to_run:
        sys.exit(f"no job has all of these words: {' '.join(chosen.only)}")
    if chosen.list:
        print("\n".join(job.name for job in jobs_to_run))
        return
    is_part = bool(chosen.only) or chosen.quick
    path = FOLDER / ("partial.json" if is_part else "results.json")
    repetitions = chosen.repetitions or (1 if chosen.quick else REPETITIONS)
    results = BenchmarkResults(
        machine=describe_machine(), settings=_describe_settings(repetitions), peers=describe_peers()
    )
    if not results.peers:
        print("peers are not measured: the package bench.peers is missing", file=sys.stderr)
    try:
        _measure_jobs(jobs_to_run, results, path, repetitions=repetitions, minutes=chosen.minutes)
    except KeyboardInterrupt:
        print("interrupted: earlier results are kept", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    print(path.with_suffix(".md").read_text(encoding="utf-8"))


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run diamonds, chains and fans once")
    parser.add_argument(
        "--only", nargs="+", default=[], help="run only jobs whose name has all these words"
    )
    parser.add_argument(
        "--repetitions",
        type=parse_positive,
        help=f"repetitions per job (default {REPETITIONS}, 1 with --quick)",
    )
    parser.add_argument(
        "--minutes",
        type=parse_positive,
        default=MINUTES_MAX,
        help="start no job after this time (default %(default)s)",
    )
    parser.add_argument("--list", action="store_true", help="print the names of the jobs")
    parser.add_argument("--job", help="run this job once and print its figures as JSON")
    return parser


def _measure_jobs(
    jobs_to_run: list[BenchmarkJob],
    results: BenchmarkResults,
    path: Path,
    *,
    repetitions: int,
    minutes: int,
) -> None:
    """Runs all jobs once, then again, so that a disturbance affects all jobs alike."""
    end = now() + 60 * minutes
    rounds = [
        job
        for repetition in range(repetitions)
        for job in jobs_to_run
        if not (job.is_once and repetition)
    ]
    for number, job in enumerate(rounds, start=1):
        print(f"[{number}/{len(rounds)}] {job.name}", file=sys.stderr, flush=True)
        if now() > end:
            results.failed.setdefault(
                job.name, f"not started: the limit of {minutes} minutes was reached"
            )
        else:
            _measure_job(job, results)
        results.is_complete = number == len(rounds)
        _write_results(results, path)


def _measure_job(job: BenchmarkJob, results: BenchmarkResults) -> None:
    try:
        figures = _run_job(job)
    except JobFailedError as error:
        results.failed[job.name] = str(error)
        print(f"  failed: {error}", file=sys.stderr)
        return
    results.add(job.name, figures)
    for name, value in figures.items():
        print(f"  {format_label(name):40} {format_number(value):>12}", file=sys.stderr)


def _run_job(job: BenchmarkJob) -> Figures:
    """Runs a job once in a child process, and ends it after JOB_TIMEOUT_S."""
    command = [sys.executable, "-m", "bench", "--job", job.name]
    try:
        code, out, err = run_child(command, folder=FOLDER.parent, timeout_s=JOB_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise JobFailedError(f"took more than {JOB_TIMEOUT_S:g} s") from error
    if code:
        raise JobFailedError(find_last_line(err))
    figures: Figures = json.loads(out.strip().splitlines()[-1])
    return figures


def find_last_line(text: str) -> str:
    """Returns the last line with text; the last line of an exception group has only dashes."""
    lines = [line.strip(" |+-") for line in text.splitlines()]
    return next((line for line in reversed(lines) if line), "no output")


def _write_results(results: BenchmarkResults, path: Path) -> None:
    targets = judge_targets(results)
    results.write(path, targets)
    path.with_suffix(".md").write_text(format_markdown(results, targets), encoding="utf-8")


def _describe_settings(repetitions: int) -> dict[str, str | int]:
    postgres = _describe_version(POSTGRES, user=get_unprivileged_user())
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "repetitions": repetitions,
        "redis": f"{_describe_version(REDIS)}, {PRIVATE_REDIS}",
        "postgres": f"{postgres}, {PRIVATE_POSTGRES}",
    }


def _describe_version(product: ServerProduct, *, user: str | None = None) -> str:
    """Returns name and version of the program that a private server runs."""
    try:
        binary = find_binary(product, user=user)
    except NoServerBinaryError:
        return "not installed"
    return f"{binary.path.name} {binary.version}"


if __name__ == "__main__":
    main()
