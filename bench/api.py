"""Many who follow, and many who ask, over HTTP: `python -m bench.api [embedded|servers] [seconds]`.

500 streams of server-sent events (400 follow one of 40 executions, 100 follow all) and 200 requests
a second (run, read, wait, list) on one API process, all on this machine.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from bench.numbers import positive
from bench.wire import Wire, WrongAnswerError
from runnel.bench.servers import servers
from runnel.bench.setup import Figures, in_ms
from runnel.engine.clock import RealIds
from tests.waiting import eventually, eventually_found

WATCHED = 40
FOLLOWERS_EACH = 10
FOLLOWERS_OF_ALL = 100
PER_S = 200
ROUNDS = 10
LIMIT_S = 60.0
ANSWERS = b"Runnel answers on "
HELLO = {"name": "hello", "nodes": [{"id": "greet", "handler": "output", "config": {"text": "hi"}}]}
# Each signal lets the next node begin to wait: something to tell, all the time.
ROUND = {"handler": "wait_for_signal", "config": {"signal": "go"}}
LONG = {
    "name": "long",
    "nodes": [
        {"id": f"n{number}", **ROUND, "dependencies": [f"n{number - 1}"] if number else []}
        for number in range(ROUNDS)
    ],
}


class Process:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url
        self._pid = process.pid

    def processor_s(self) -> float:
        """All that it has used up, of its own and of the system."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1_024


@dataclass
class Follower:
    """Counts the messages of one stream, by event; `text` is what is not a whole message yet."""

    path: str
    events: dict[str, int] = field(default_factory=dict)
    completed: int = 0
    is_over: bool = False
    text: bytes = b""

    async def follow(self, url: str) -> None:
        wire = Wire(url)
        reader, writer = await wire.connect()
        writer.write(wire.head("GET", self.path))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        try:
            while not self.is_over and (chunk := await reader.read(65_536)):
                self.take(chunk)
        finally:
            writer.close()

    def take(self, chunk: bytes) -> None:
        *whole, self.text = (self.text + chunk).split(b"\n\n")
        for each in whole:
            _, is_event, rest = each.partition(b"\nevent: ")
            if is_event:
                name = rest.partition(b"\n")[0].decode()
                self.events[name] = self.events.get(name, 0) + 1
                self.completed += b'"status":"COMPLETED"' in rest
                self.is_over = name == "end"

    @property
    def told(self) -> int:
        return sum(self.events.values())


@dataclass
class Load:
    """What was asked, how long each answer took, and what went wrong."""

    http: Wire
    begun: list[str] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    async def ask(self, kind: str) -> None:
        last = self.begun[-1]
        call: tuple[str, str, object] = {
            "run": ("POST", "/v1/workflows/hello/run", {}),
            "read": ("GET", f"/v1/executions/{last}", None),
            "wait": ("GET", f"/v1/executions/{last}/wait?timeout=30", None),
            "list": ("GET", "/v1/executions?limit=20", None),
        }[kind]
        started = time.perf_counter()
        try:
            answer = await self.http.call(*call)
        except (WrongAnswerError, OSError, EOFError) as error:
            self.errors.append(f"{kind}: {error!r}")
            return
        self.times.setdefault(kind, []).append(time.perf_counter() - started)
        if kind == "run":
            self.begun.append(answer["execution_id"])


async def load(kind: str, seconds: float = 60.0) -> Figures:
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(DEPLOYMENTS[kind]())
        http = Wire(process.url)
        stack.callback(http.close)
        await eventually_found(lambda: _ready(http), every_s=0.1, deadline_s=LIMIT_S)
        for document in (HELLO, LONG):
            await http.call("POST", "/v1/workflows", document)
        asked = Load(http, begun=[await _run(http, "hello")])
        watched = [await _run(http, "long") for _ in range(WATCHED)]
        ones = [
            Follower(f"/v1/executions/{each}/events")
            for each in watched
            for _ in range(FOLLOWERS_EACH)
        ]
        alls = [Follower("/v1/events") for _ in range(FOLLOWERS_OF_ALL)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.follow(process.url)) for each in (*ones, *alls)]
            await eventually(lambda: all(each.told for each in (*ones, *alls)), LIMIT_S)
            first, used_s = len(asked.begun), process.processor_s()
            async with asyncio.TaskGroup() as busy:
                busy.create_task(_signals(http, watched, seconds))
                begin_mb = await _asking(asked, seconds, process)
            used_s, end_mb = process.processor_s() - used_s, process.resident_mb()
            runs = len(asked.begun) - first
            expected = [len(await _history(http, each)) + 1 for each in watched]
            wanted = [each for each in expected for _ in range(FOLLOWERS_EACH)]
            await _settled(lambda: all(each.is_over for each in ones))
            await _settled(lambda: all(each.completed >= runs + WATCHED for each in alls))
            for task in tasks:
                task.cancel()
    for error in asked.errors[:5]:
        print(error, file=sys.stderr)
    return {
        **_latencies(asked),
        "requests_per_s": sum(map(len, asked.times.values())) / seconds,
        "errors": float(len(asked.errors)),
        "events_told": float(sum(each.told for each in (*ones, *alls))),
        "events_missing": float(
            sum(abs(want - each.told) for want, each in zip(wanted, ones, strict=True))
            + sum(abs(runs + WATCHED - each.completed) for each in alls)
            + sum(each.events.get("gap", 0) for each in alls)
        ),
        "api_processors": used_s / seconds,
        "resident_mb_begin": begin_mb,
        "resident_mb_end": end_mb,
        "machine_load": os.getloadavg()[0],
    }


async def _asking(asked: Load, seconds: float, process: Process) -> float:
    """200 a second, whether those before are answered or not; memory after a sixth of the time."""
    kinds = ("run", "read", "wait", "list")
    begin_mb = 0.0
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in count():
            due = started + number / PER_S
            if number == round(seconds * PER_S / 6):
                begin_mb = process.resident_mb()
            if number >= seconds * PER_S:
                return begin_mb
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(asked.ask(kinds[number % len(kinds)]))
    raise AssertionError("the count has no end")


async def _signals(http: Wire, watched: list[str], seconds: float) -> None:
    """The last one after nine tenths of the time: then all of the watched ones end."""
    for _ in range(ROUNDS):
        await asyncio.sleep(seconds * 0.9 / ROUNDS)
        for each in watched:
            body = {"name": "go", "payload": 1}
            await http.call("POST", f"/v1/executions/{each}/signal", body)


async def _settled(condition: Callable[[], bool]) -> None:
    """What does not come within ten seconds is missing, and counted so."""
    try:
        await eventually(condition, 10.0)
    except TimeoutError:
        return


def _latencies(asked: Load) -> Figures:
    found: Figures = {}
    for kind, times in asked.times.items():
        found |= in_ms(kind, times)
    return found


async def _ready(http: Wire) -> bool | None:
    return (await http.call("GET", "/health/ready"))["status"] == "ready" or None


async def _run(http: Wire, name: str) -> str:
    return str((await http.call("POST", f"/v1/workflows/{name}/run", {}))["execution_id"])


async def _history(http: Wire, execution_id: str) -> list[Any]:
    await http.call("GET", f"/v1/executions/{execution_id}/wait?timeout=30")
    found: list[Any] = (await http.call("GET", f"/v1/executions/{execution_id}/history"))["items"]
    return found


@asynccontextmanager
async def _embedded() -> AsyncIterator[Process]:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        async with _serving("dev", Path(folder), {}) as process:
            yield process


@asynccontextmanager
async def _on_servers() -> AsyncIterator[Process]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-")))
        private = stack.enter_context(servers(nonce=RealIds().nonce()))
        stores = {"REDIS_URL": private.redis_url, "POSTGRES_URL": str(private.postgres_url)}
        async with (
            _running(["orchestrator"], folder, stores),
            _running(["worker", "--concurrency", "16"], folder, stores),
            _serving("api", folder, stores) as process,
        ):
            yield process


@asynccontextmanager
async def _serving(role: str, folder: Path, environ: dict[str, str]) -> AsyncIterator[Process]:
    async with _running([role, "--port", "0"], folder, environ) as process:
        if process.stderr is None:
            raise RuntimeError("stderr is not read")
        async for line in process.stderr:
            if line.startswith(ANSWERS):
                yield Process(process, line.removeprefix(ANSWERS).decode().strip())
                return


@asynccontextmanager
async def _running(
    words: list[str], folder: Path, environ: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    quiet = {"RUNNEL_LOG_LEVEL": "error", "RUNNEL_API_RATE_LIMIT": "0"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runnel", *words),
        cwd=folder,
        env={**os.environ, **quiet, **environ},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


DEPLOYMENTS = {"embedded": _embedded, "servers": _on_servers}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=DEPLOYMENTS, default="embedded")
    parser.add_argument("seconds", nargs="?", type=positive, default=60)
    chosen = parser.parse_args()
    for figure, value in asyncio.run(load(chosen.kind, chosen.seconds)).items():
        print(f"{figure:20} {value:12.2f}")
