"""Orchestrators and workers as processes of their own, which can be killed, paused and replaced.

They end with this process at the latest, however that ends, and by force: nobody needs what they
would tidy up.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

import runnel
from runnel.errors import ServerFailedError
from runnel.ports.clock import Clock
from runnel.runtime.servers.process import ServerProcess
from runnel.settings import VARIABLES

LOG_LINES = 5
LOOK_EVERY_S = 0.5


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """That of this process without any setting of Runnel, and with these.

    Another process that gets it runs the same code, wherever it runs.
    """
    kept = {name: text for name, text in os.environ.items() if name not in VARIABLES}
    source = str(Path(runnel.__file__).resolve().parents[1])
    path = os.pathsep.join([source, *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, **environ}


class Fleet:
    """`modules` are the arguments of Python by the name of a place; each place has one process."""

    def __init__(
        self, modules: Mapping[str, Sequence[str]], environ: Mapping[str, str], folder: Path
    ) -> None:
        self._modules = modules
        self._environ = clean_environment(environ)
        self._folder = folder
        self._processes: dict[str, ServerProcess] = {}

    def __enter__(self) -> Self:
        try:
            for place in self._modules:
                self.start(place)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill_all()

    def start(self, place: str) -> None:
        self._processes[place] = ServerProcess(
            [sys.executable, "-m", *self._modules[place]],
            folder=self._folder,
            log=self._log(place),
            user=None,
            environ=self._environ,
        )

    def pid(self, place: str) -> int:
        return self._processes[place].pid

    def pids(self) -> dict[str, int]:
        return {place: process.pid for place, process in self._processes.items()}

    def ended(self) -> Mapping[str, str]:
        """Places whose process has ended by itself, and the last that it wrote."""
        return {
            place: "\n".join(self._log(place).read_text(errors="replace").splitlines()[-LOG_LINES:])
            for place, process in self._processes.items()
            if process.has_ended
        }

    @asynccontextmanager
    async def watched(self, clock: Clock) -> AsyncIterator[None]:
        """Raises ServerFailedError, in a group, soon after a process has ended by itself: whoever
        waits for what it was to do would wait for ever.
        """
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(clock))
            try:
                yield
            finally:
                watching.cancel()

    async def _watch(self, clock: Clock) -> NoReturn:
        while True:
            for place, said in self.ended().items():
                raise ServerFailedError(place, "ended in the middle", log=said)
            await clock.sleep(LOOK_EVERY_S)

    def kill(self, place: str) -> None:
        """As kill -9 does."""
        self._processes.pop(place).kill()

    def replace(self, place: str) -> None:
        self.kill(place)
        self.start(place)

    def pause(self, place: str) -> None:
        self._processes[place].pause()

    def resume(self, place: str) -> None:
        self._processes[place].resume()

    def _kill_all(self) -> None:
        while self._processes:
            self._processes.popitem()[1].kill()

    def _log(self, place: str) -> Path:
        return self._folder / f"{place}.log"
