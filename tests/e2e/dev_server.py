"""Runs `runnel dev` in a separate process, for tests that call it over HTTP."""

import os
import queue
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.program import DEADLINE_S, Program
from tests.fork_server import ForkedCommand, Streams

ANSWERS = "Runnel answers on "


@dataclass(kw_only=True)
class DevServer:
    """A server that runs. `program` runs commands in its folder; `lines` holds its stderr."""

    url: str
    program: Program
    process: ForkedCommand
    lines: list[str] = field(default_factory=list)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send(number)
        return self.process.wait(DEADLINE_S)


@contextmanager
def dev_server(folder: Path, *arguments: str, **environment: str) -> Iterator[DevServer]:
    """Starts the server on a free port and kills it at the end if it still runs."""
    program = Program(folder)
    reading, writing = os.pipe()
    with Path(os.devnull).open("r+") as devnull, os.fdopen(writing, "w") as stderr:
        streams = Streams(devnull.fileno(), devnull.fileno(), stderr.fileno())
        process = program.begin("dev", "--port", "0", *arguments, streams=streams, **environment)
    urls: queue.SimpleQueue[str] = queue.SimpleQueue()
    lines: list[str] = []
    reader = threading.Thread(target=_read, args=(reading, urls, lines), daemon=True)
    reader.start()
    try:
        try:
            url = urls.get(timeout=DEADLINE_S)
        except queue.Empty:
            raise AssertionError(f"stderr has no address of the server: {lines}") from None
        yield DevServer(url=url, program=program, process=process, lines=lines)
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        reader.join(DEADLINE_S)


def _read(reading: int, urls: "queue.SimpleQueue[str]", lines: list[str]) -> None:
    with os.fdopen(reading) as stderr:
        for line in stderr:
            lines.append(line.rstrip())
            if ANSWERS in line:
                urls.put(line.partition(ANSWERS)[2].strip())
