"""Several processes that answer on one socket: those that die are started again."""

import asyncio
import socket
import sys
from collections.abc import Sequence

from runnel.runtime.clock import RealClock
from runnel.runtime.interrupts import SIGNAL_EXIT, SIGNALS, hearing

# One that dies at its start is not started again and again without a breath.
PAUSE_S = 1.0


async def supervise(commands: Sequence[Sequence[str]], listening: socket.socket) -> int:
    """Until a signal, which all of them are told; the exit code of the first that had a bad one.

    One that was told before it could hear is ended by the signal itself, which is as good.
    """
    clock = RealClock()
    stopping = asyncio.Event()
    running: set[asyncio.subprocess.Process] = set()

    def tell(number: int) -> None:
        stopping.set()
        for each in running:
            if each.returncode is None:
                each.send_signal(number)

    async def keep(command: Sequence[str]) -> int:
        code = 0
        while not stopping.is_set():
            process = await asyncio.create_subprocess_exec(*command, pass_fds=[listening.fileno()])
            running.add(process)
            code = await process.wait()
            running.discard(process)
            if not stopping.is_set():
                print(f"a process ended with {code}; starting another", file=sys.stderr)
                await clock.wait(stopping, PAUSE_S)
        return code

    with hearing(tell, at_last=lambda: None):
        async with asyncio.TaskGroup() as group:
            keeping = [group.create_task(keep(command)) for command in commands]
    codes = [each.result() for each in keeping]
    bad = next((code for code in codes if code and -code not in SIGNALS), 0)
    return bad if bad >= 0 else SIGNAL_EXIT - bad
