"""Several processes that answer on one socket: those that die are started again."""

import asyncio
import os
import signal
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

from runnel.ports.clock import Clock
from runnel.runtime.clock import RealClock
from runnel.runtime.interrupts import SIGNAL_EXIT, SIGNALS, hearing

# One that dies at its start is not started again and again without a breath.
PAUSE_S = 1.0
PAUSE_S_MAX = 30.0
# Whoever has lived so long could be started: what ends it afterwards is something else.
STARTED_S = 10.0


async def supervise(commands: Sequence[Sequence[str]], listening: socket.socket) -> int:
    """Until a signal, which all of them are told; the exit code of the first that had a bad one.

    When the first ones can't be started, neither is anything else: it ends with their exit code.
    """
    several = _Several(listening.fileno(), RealClock())
    with hearing(several.tell, at_last=lambda: None):
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(several.keep(command)) for command in commands]
    codes = [each.result() for each in keeping]
    bad = next((code for code in codes if not several.is_good(code)), 0)
    return bad if bad >= 0 else SIGNAL_EXIT - bad


def end_with_parent() -> None:
    """This process ends as by a signal when the one that has started it is gone, even by a kill -9.

    Standard input is a pipe whose other end only that one holds.
    """

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


class _Several:
    def __init__(self, socket_number: int, clock: Clock) -> None:
        self._socket_number = socket_number
        self._clock = clock
        self._stopping = asyncio.Event()
        self._running: set[Process] = set()
        self._has_started = False
        self._told = 0

    def is_good(self, code: int) -> bool:
        """Who was told once to end, and before it could hear that, is ended by the signal."""
        ended_by = -code if code < 0 else code - SIGNAL_EXIT
        return code == 0 or (ended_by in SIGNALS and (code < 0 or self._told == 1))

    def tell(self, number: int) -> None:
        self._told += 1
        self._stopping.set()
        for each in self._running:
            if each.returncode is None:
                each.send_signal(number)

    async def keep(self, command: Sequence[str]) -> int:
        """One of them and its successors; the exit code of the last."""
        code, failed = 0, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code = await self._one(command)
            if self._stopping.is_set():
                break
            lived_s = self._clock.monotonic() - began
            self._has_started = self._has_started or lived_s >= STARTED_S
            if code > 0 and not self._has_started:
                print("the processes can't be started; see the error above", file=sys.stderr)
                self.tell(signal.SIGTERM)
                break
            failed = 0 if lived_s >= STARTED_S else failed + 1
            print(f"a process ended with {code}; starting another", file=sys.stderr)
            pause_s = min(PAUSE_S_MAX, PAUSE_S * (1 << min(failed, 10)))
            await self._clock.wait(self._stopping, pause_s)
        return code

    async def _one(self, command: Sequence[str]) -> int:
        """In a session of its own: Ctrl-C in a terminal is told by this process, and once."""
        process = await asyncio.create_subprocess_exec(
            *command,
            pass_fds=[self._socket_number],
            stdin=PIPE,
            start_new_session=True,
        )
        self._running.add(process)
        if self._stopping.is_set():  # told while it was being started
            process.terminate()
        try:
            return await process.wait()
        finally:
            self._running.discard(process)
