"""Follows a page: writes its files, runs its commands, compares their output.

- A block that begins with `# name.py` is a file.
- `$ ` begins a command. The lines after it are its output: stdout, and stderr too if it fails.
- `…` stands for any text within a line. Alone on a line it stands for any lines.
- A command that ends with `&` runs in the background. After the `&`, the comment
  `# wait until it prints: words` names the text that stderr must contain before the next command
  runs. If the command redirects stderr (`2>run.log &`), the file must contain the text.
- `export NAME=$(command)` sets a variable for all later commands.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.docs.page_commands import PageCommands
from tests.e2e.program import DEADLINE_S, clean_environment
from tests.fork_server import CommandResult
from tests.waiting import POLL_INTERVAL_S

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"(?:#|//) ([\w/.-]+\.\w+)\n")
_COMMAND = re.compile(r"^\$ (.*?)\n(.*?)(?=^\$ |\Z)", re.DOTALL | re.MULTILINE)
_BACKGROUND = re.compile(r"(.*?) &(?:\s+# wait until it prints: (.*))?$")
_REDIRECTED = re.compile(r" 2>([\w.]+)$")
_EXPORT = re.compile(r"export (\w+)=\$\([^;]*\)")
_PLAIN = re.compile(r"((?:\w+=\S+ )*)runnel ([^|;<>&$`]*)")


class Command(NamedTuple):
    line: str
    printed: str


class File(NamedTuple):
    name: str
    text: str


def steps_of(page: str) -> list[File | Command]:
    """Returns the files and commands of a page in their order."""
    return [step for kind, text in BLOCK.findall(page) for step in _steps(kind, text)]


def commands_of(console: str) -> list[Command]:
    return [Command(line, printed) for line, printed in _COMMAND.findall(console)]


def _steps(kind: str, text: str) -> Iterator[File | Command]:
    named = _FILE.match(text)
    if kind == "console":
        yield from commands_of(text)
    elif named is not None:
        yield File(named[1], text)


class Console:
    """The terminal of a reader, in `folder`."""

    def __init__(
        self, folder: Path, forks: PageCommands, *, environment: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._forks = forks
        self._environment = clean_environment(**environment)
        self._background: subprocess.Popen[str] | None = None

    def follow(self, step: File | Command) -> None:
        """Writes a file, or runs a command.

        Raises AssertionError if the output differs from the page.
        """
        if isinstance(step, File):
            path = self.folder / step.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(step.text, encoding="utf-8")
            return
        done = self.run(step.line)
        if done is not None and not matches(step.printed, shown(done)):
            raise AssertionError(
                f"$ {step.line}\nprints:\n{shown(done)}\nbut the page shows:\n{step.printed}"
            )

    def run(self, line: str) -> CommandResult | None:
        """Returns the result of a command.

        Returns None for a command in the background; the command `wait` returns its result.
        """
        if (background := _BACKGROUND.fullmatch(line)) is not None:
            self._begin(background[1], until=background[2])
            return None
        if line == "wait":
            return self._wait()
        if line == "kill -9 $!":
            return self._kill()
        if (exported := _EXPORT.fullmatch(line)) is not None:
            return self._export(line, exported[1])
        if (plain := _PLAIN.fullmatch(line)) is not None:
            given = dict(word.split("=", 1) for word in shlex.split(plain[1]))
            words = shlex.split(plain[2], comments=True)
            return self._forks.run(words, self.folder, self._environment | given)
        return self._shell(line)

    def _export(self, line: str, name: str) -> CommandResult:
        done = self._shell(f'{line}; printf %s "${name}"')
        self._environment[name] = done.out
        return CommandResult(done.code, "", done.err)

    def _shell(self, line: str) -> CommandResult:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def _begin(self, line: str, *, until: str | None) -> None:
        default_log = self.folder / ".background"
        redirected = _REDIRECTED.search(line)
        log = default_log if redirected is None else self.folder / redirected[1]
        log.touch()
        with default_log.open("w") as errors:
            self._background = subprocess.Popen(
                ["bash", "-c", f"exec env {line}"],
                cwd=self.folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        end = time.monotonic() + DEADLINE_S
        while until is not None and until not in log.read_text():
            if time.monotonic() > end or self._background.poll() is not None:
                raise AssertionError(f"$ {line}\nnever printed '{until}', only:\n{log.read_text()}")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._background.wait(POLL_INTERVAL_S)

    def _wait(self) -> CommandResult:
        if self._background is None:
            raise AssertionError("nothing runs in the background")
        out, _ = self._background.communicate(timeout=DEADLINE_S)
        return CommandResult(
            self._background.returncode, out, (self.folder / ".background").read_text()
        )

    def _kill(self) -> CommandResult:
        if self._background is None:
            raise AssertionError("nothing runs in the background")
        self._background.kill()
        self._background.communicate()
        return CommandResult(0, "", "")

    def close(self) -> None:
        if self._background is not None and self._background.poll() is None:
            self._kill()


@contextlib.contextmanager
def console(folder: Path, forks: PageCommands, **environment: str) -> Iterator[Console]:
    """Opens a terminal whose `runnel` and `python` are those that run the tests."""
    programs = folder / ".bin"
    programs.mkdir()
    for name, words in (("runnel", f"{sys.executable} -m runnel"), ("python", sys.executable)):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    opened = Console(folder, forks, environment={"PATH": path, **environment})
    try:
        yield opened
    finally:
        opened.close()


def shown(done: CommandResult) -> str:
    return done.out if done.code == 0 else done.out + done.err


def matches(expected: str, printed: str) -> bool:
    pattern = "\n".join(_line_pattern(line) for line in expected.strip().splitlines())
    pattern = pattern.replace("<any lines>\n", "(?:.*\n)*").replace("<any lines>", "(?s:.*)")
    text = "\n".join(line.rstrip() for line in printed.strip().splitlines())
    return re.fullmatch(pattern, text) is not None


def _line_pattern(line: str) -> str:
    if line.strip() == "…":
        return "<any lines>"
    return ".*".join(re.escape(part) for part in line.rstrip().split("…"))
