"""Runs commands of `runnel` in forks of a process that has imported it: as separate as a start of
the program, without the cold start of each.

As a program it reads one order per line, {"words", "folder", "environment", "out", "err"}, where
the last two are files, and answers with the exit code.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from runnel.cli.main import run_command
from tests.e2e.program import clean_environment

# What commands import late: a fork has it already.
PRELOADED = ("runnel.authoring", "runnel.backends", "runnel.cli", "runnel.core")
PRELOADED_ALONE = (
    "jsonschema",
    "redis.asyncio",
    "runnel.runtime.build",
    "runnel.runtime.decorated",
    "yaml",
)


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Forks:
    """The process that is forked, as seen by a test."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> Done:
        files = {"out": str(folder / ".out"), "err": str(folder / ".err")}
        order = {
            "words": words,
            "folder": str(folder),
            "environment": environment or clean_environment(),
            **files,
        }
        if self._process.stdin is None or self._process.stdout is None:
            raise AssertionError("it is not listened to")
        print(json.dumps(order), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        out, err = (Path(path).read_text(encoding="utf-8") for path in files.values())
        return Done(code, out, err)


@contextlib.contextmanager
def forks() -> Iterator[Forks]:
    with subprocess.Popen(  # ended by the end of its stdin
        [sys.executable, "-m", "tests.docs.forks"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Forks(process)


def main() -> None:
    for name in [
        *PRELOADED_ALONE,
        *(each for package in PRELOADED for each in modules_of(package)),
    ]:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            obey(order)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def modules_of(package: str) -> Iterator[str]:
    path = importlib.import_module(package).__path__
    return (found.name for found in pkgutil.walk_packages(path, f"{package}."))


def obey(order: dict[str, Any]) -> None:
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, path in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        os.dup2(os.open(path, flags, 0o600), number)
    sys.exit(run_command(order["words"]))


if __name__ == "__main__":
    main()
