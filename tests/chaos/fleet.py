"""Orchestrators and workers as real processes, which can be killed, paused and renamed."""

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
    """Named processes of `runnel`. `roles` maps each name to the arguments of its process."""

    def __init__(
        self, roles: Mapping[str, tuple[str, ...]], environ: Mapping[str, str], logs: Path
    ) -> None:
        self._roles = roles
        self._environ = {**os.environ, "PYTHONPATH": PATH, **environ}
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()

    def __enter__(self) -> Self:
        for name in self._roles:
            self.start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for name in list(self._processes):
            self.kill(name)

    def start(self, name: str) -> None:
        with (self._logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "runnel", *self._roles[name]],
                env=self._environ,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kills the process with SIGKILL."""
        process = self._processes.pop(name)
        self._paused.discard(name)
        process.kill()
        process.wait()

    def replace(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def pause(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)
        self._paused.add(name)

    def resume(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGCONT)
        self._paused.discard(name)

    def end(self) -> dict[str, int]:
        """Shuts all processes down, workers first, and returns their exit codes."""
        codes: dict[str, int] = {}
        for name in sorted(self._processes, reverse=True):
            process = self._processes.pop(name)
            process.send_signal(signal.SIGTERM)
            codes[name] = process.wait(END_LIMIT_S)
        return codes

    def supervise(self) -> None:
        """Restarts processes that ended by themselves, as a process supervisor does.

        A process that could not reach its server at the start ends with an error.
        """
        for name, process in list(self._processes.items()):
            if process.poll() is not None:
                self.start(name)

    def find_logs(self, text: str) -> list[str]:
        """Returns the names of processes whose log contains the text."""
        return [name for name in self._roles if text in self.log_of(name)]

    def log_of(self, name: str) -> str:
        return (self._logs / f"{name}.log").read_text(encoding="utf-8", errors="replace")
