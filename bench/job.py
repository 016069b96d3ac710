"""Runs a measurement in a separate process, so that measurements do not affect each other."""

import os
import signal
import subprocess
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from runnel.bench.figures import Figures

# The time for a child to clean up after Ctrl-C.
TERMINATE_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkJob:
    """One measurement. `name` is the workload followed by the configuration.

    `--quick` runs only jobs that are `is_short`. A job that is `is_once` has no repetitions.
    """

    name: str
    run: Callable[[], Figures]
    is_short: bool = False
    is_once: bool = False

    def has_words(self, words: Collection[str]) -> bool:
        """Returns whether the name has all words, in any order."""
        return set(words) <= set(self.name.split())


def run_child(command: list[str], *, folder: Path, timeout_s: float) -> tuple[int, str, str]:
    """Runs a command and returns exit code, stdout and stderr.

    Raises subprocess.TimeoutExpired. After a timeout or an interrupt, the child and every process
    that it started are ended: first by SIGINT, then by SIGKILL.
    """
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
    except BaseException:
        _terminate(child)
        raise
    return child.returncode, out, err


def _terminate(child: subprocess.Popen[str]) -> None:
    os.killpg(child.pid, signal.SIGINT)
    try:
        child.communicate(timeout=TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
