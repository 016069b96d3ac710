"""Orchestrators and workers as real processes, which can be killed, paused and replaced."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
END_LIMIT_S = 30.0


class Fleet:
    """`roles` are the arguments of `runnel` by the name of a place; each place has one process."""

    def __init__(
        self, roles: Mapping[str, tuple[str, ...]], environ: Mapping[str, str], logs: Path
    ) -> None:
        self._roles = roles
        self._environ = {**os.environ, "PYTHONPATH": PATH, **environ}
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()

    def __enter__(self) -> Self:
        for place in self._roles:
            self.start(place)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for place in list(self._processes):
            self.kill(place)

    def start(self, place: str) -> None:
        with (self._logs / f"{place}.log").open("ab") as log:
            self._processes[place] = subprocess.Popen(
                [sys.executable, "-m", "runnel", *self._roles[place]],
                env=self._environ,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def pid(self, place: str) -> int:
        return self._processes[place].pid

    def kill(self, place: str) -> None:
        """As kill -9 does."""
        process = self._processes.pop(place)
        self._paused.discard(place)
        process.kill()
        process.wait()

    def replace(self, place: str) -> None:
        self.kill(place)
        self.start(place)

    def pause(self, place: str) -> None:
        self._processes[place].send_signal(signal.SIGSTOP)
        self._paused.add(place)

    def resume(self, place: str) -> None:
        self._processes[place].send_signal(signal.SIGCONT)
        self._paused.discard(place)

    def end(self) -> dict[str, int]:
        """In good order, workers first; the exit codes."""
        codes: dict[str, int] = {}
        for place in sorted(self._processes, reverse=True):
            process = self._processes.pop(place)
            process.send_signal(signal.SIGTERM)
            codes[place] = process.wait(END_LIMIT_S)
        return codes

    def supervise(self) -> None:
        """Starts again what has ended by itself, as whoever runs processes does.

        One that begins while its server is down says so and ends.
        """
        for place, process in list(self._processes.items()):
            if process.poll() is not None:
                self.start(place)

    def tracebacks(self) -> list[str]:
        """Places whose processes have met something that nobody had thought of."""
        return [place for place in self._roles if "Traceback" in self.log_of(place)]

    def log_of(self, place: str) -> str:
        return (self._logs / f"{place}.log").read_text(encoding="utf-8", errors="replace")
