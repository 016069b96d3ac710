"""`runnel dev` in a process of its own, for tests that call it over HTTP."""

import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.program import DEADLINE_S, Program, clean_environment

SAYS = "Runnel answers on "


@dataclass(kw_only=True)
class DevServer:
    """`program` runs commands in the same folder; `lines` are what the server has logged."""

    url: str
    program: Program
    process: "subprocess.Popen[str]"
    lines: list[str] = field(default_factory=list)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def dev_server(folder: Path, *arguments: str, **environment: str) -> Iterator[DevServer]:
    """On a port that is free; killed at the end if it still runs."""
    program = Program(folder)
    process = subprocess.Popen(
        program.command("dev", "--port", "0", *arguments),
        cwd=folder,
        env=clean_environment(**environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    urls: queue.SimpleQueue[str] = queue.SimpleQueue()
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(process, urls, lines), daemon=True)
    reader.start()
    try:
        try:
            url = urls.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise AssertionError(f"it never said where it answers: {lines}") from None
        yield DevServer(url=url, program=program, process=process, lines=lines)
    finally:
        process.kill()
        process.wait()
        reader.join(DEADLINE_S)
        if process.stderr is not None:
            process.stderr.close()


def _read(
    process: "subprocess.Popen[str]", urls: "queue.SimpleQueue[str]", lines: list[str]
) -> None:
    for line in process.stderr or ():
        lines.append(line.rstrip())
        if SAYS in line:
            urls.put(line.partition(SAYS)[2].strip())
