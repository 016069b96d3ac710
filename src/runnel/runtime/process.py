"""A process with a role, from its first log line to its last: signals drain it, then end it."""

import asyncio
import os

from runnel.ports.backend import Backend
from runnel.ports.telemetry import PROCESS_ENDED, PROCESS_STARTED, Telemetry
from runnel.runtime.engine import Stops
from runnel.runtime.interrupts import SIGNAL_EXIT, hearing
from runnel.runtime.roles import Role

_NOW = 2


class Process:
    """The first signal drains, the second ends what still runs, the third ends the process.

    What is stored is safe at any moment, so the third needs no word.
    """

    def __init__(self, role: Role, backend: Backend, telemetry: Telemetry) -> None:
        self.stops = Stops(asyncio.Event(), asyncio.Event())
        self._role = role
        self._backend = backend
        self._telemetry = telemetry
        self._signals = 0
        self._last = 0

    async def run(self) -> int:
        """The exit code: 0 after a drain, 128 and the signal's number when it was hurried.

        Closes the backend.
        """
        with hearing(self._on_signal, at_last=lambda: None):
            self._telemetry.event(PROCESS_STARTED, process=self._role.name, pid=os.getpid())
            try:
                await self._role.run(self.stops)
            finally:
                await self._backend.close()
                self._telemetry.event(PROCESS_ENDED, process=self._role.name)
        return 0 if self._signals < _NOW else SIGNAL_EXIT + self._last

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        self._last = number
        self.stops.gently.set()
        if self._signals >= _NOW:
            self.stops.now.set()
