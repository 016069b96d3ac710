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

from bench.http_client import BareHttpClient, WrongAnswerError
from bench.numbers import parse_positive
from runnel.bench.servers import open_servers
from runnel.bench.setup import Figures, summarize_latency
from runnel.engine.clock import RandomIdGenerator
from tests.waiting import wait_for_value, wait_until

WATCHED_EXECUTIONS = 40
FOLLOWERS_EACH = 10
FOLLOWERS_OF_ALL = 100
REQUESTS_PER_S = 200
ROUNDS = 10
TIMEOUT_S = 60.0
READY_PREFIX = b"Runnel answers on "
HELLO_WORKFLOW = {
    "name": "hello",
    "nodes": [{"id": "greet", "handler": "output", "config": {"text": "hi"}}],
}
# Each signal lets the next node begin to wait: something to tell, all the time.
SIGNAL_NODE = {"handler": "wait_for_signal", "config": {"signal": "go"}}
LONG_WORKFLOW = {
    "name": "long",
    "nodes": [
        {"id": f"n{number}", **SIGNAL_NODE, "dependencies": [f"n{number - 1}"] if number else []}
        for number in range(ROUNDS)
    ],
}


class ApiProcess:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url
        self._pid = process.pid

    def read_cpu_s(self) -> float:
        """All that it has used up, of its own and of the system."""
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def read_resident_mb(self) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmRSS"))
        return int(line.split()[1]) / 1_024


@dataclass
class StreamFollower:
    """Counts the messages of one stream, by event; `buffer` is what is not a whole message yet."""

    path: str
    events: dict[str, int] = field(default_factory=dict)
    completed: int = 0
    has_ended: bool = False
    buffer: bytes = b""

    async def follow(self, url: str) -> None:
        wire = BareHttpClient(url)
        reader, writer = await wire.connect()
        writer.write(wire.build_head("GET", self.path))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        try:
            while not self.has_ended and (chunk := await reader.read(65_536)):
                self.parse(chunk)
        finally:
            writer.close()

    def parse(self, chunk: bytes) -> None:
        *whole, self.buffer = (self.buffer + chunk).split(b"\n\n")
        for each in whole:
            _, is_event, rest = each.partition(b"\nevent: ")
            if is_event:
                name = rest.partition(b"\n")[0].decode()
                self.events[name] = self.events.get(name, 0) + 1
                self.completed += b'"status":"COMPLETED"' in rest
                self.has_ended = name == "end"

    @property
    def message_count(self) -> int:
        return sum(self.events.values())


@dataclass
class RequestLoad:
    """What was asked, how long each answer took, and what went wrong."""

    http: BareHttpClient
    execution_ids: list[str] = field(default_factory=list)
    latencies_s: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    async def send(self, kind: str) -> None:
        last = self.execution_ids[-1]
        call: tuple[str, str, object] = {
            "run": ("POST", "/v1/workflows/hello/run", {}),
            "read": ("GET", f"/v1/executions/{last}", None),
            "wait": ("GET", f"/v1/executions/{last}/wait?timeout=30", None),
            "list": ("GET", "/v1/executions?limit=20", None),
        }[kind]
        started = time.perf_counter()
        try:
            answer = await self.http.request(*call)
        except (WrongAnswerError, OSError, EOFError) as error:
            self.errors.append(f"{kind}: {error!r}")
            return
        self.latencies_s.setdefault(kind, []).append(time.perf_counter() - started)
        if kind == "run":
            self.execution_ids.append(answer["execution_id"])


async def measure_load(kind: str, seconds: float = 60.0) -> Figures:
    async with AsyncExitStack() as stack:
        process = await stack.enter_async_context(DEPLOYMENTS[kind]())
        http = BareHttpClient(process.url)
        stack.callback(http.close)
        await wait_for_value(lambda: _is_ready(http), every_s=0.1, deadline_s=TIMEOUT_S)
        for document in (HELLO_WORKFLOW, LONG_WORKFLOW):
            await http.request("POST", "/v1/workflows", document)
        asked = RequestLoad(http, execution_ids=[await _start_execution(http, "hello")])
        watched = [await _start_execution(http, "long") for _ in range(WATCHED_EXECUTIONS)]
        ones = [
            StreamFollower(f"/v1/executions/{each}/events")
            for each in watched
            for _ in range(FOLLOWERS_EACH)
        ]
        alls = [StreamFollower("/v1/events") for _ in range(FOLLOWERS_OF_ALL)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each.follow(process.url)) for each in (*ones, *alls)]
            await wait_until(lambda: all(each.message_count for each in (*ones, *alls)), TIMEOUT_S)
            first, used_s = len(asked.execution_ids), process.read_cpu_s()
            async with asyncio.TaskGroup() as busy:
                busy.create_task(_send_signals(http, watched, seconds))
                begin_mb = await _send_requests(asked, seconds, process)
            used_s, end_mb = process.read_cpu_s() - used_s, process.read_resident_mb()
            runs = len(asked.execution_ids) - first
            expected = [len(await _read_history(http, each)) + 1 for each in watched]
            wanted = [each for each in expected for _ in range(FOLLOWERS_EACH)]
            await _wait_until(lambda: all(each.has_ended for each in ones))
            await _wait_until(
                lambda: all(each.completed >= runs + WATCHED_EXECUTIONS for each in alls)
            )
            for task in tasks:
                task.cancel()
    for error in asked.errors[:5]:
        print(error, file=sys.stderr)
    return {
        **_summarize_latencies(asked),
        "requests_per_s": sum(map(len, asked.latencies_s.values())) / seconds,
        "errors": float(len(asked.errors)),
        "events_told": float(sum(each.message_count for each in (*ones, *alls))),
        "events_missing": float(
            sum(abs(want - each.message_count) for want, each in zip(wanted, ones, strict=True))
            + sum(abs(runs + WATCHED_EXECUTIONS - each.completed) for each in alls)
            + sum(each.events.get("gap", 0) for each in alls)
        ),
        "api_processors": used_s / seconds,
        "resident_mb_begin": begin_mb,
        "resident_mb_end": end_mb,
        "machine_load": os.getloadavg()[0],
    }


async def _send_requests(load: RequestLoad, seconds: float, process: ApiProcess) -> float:
    """200 a second, whether those before are answered or not; memory after a sixth of the time."""
    kinds = ("run", "read", "wait", "list")
    begin_mb = 0.0
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in count():
            due = started + number / REQUESTS_PER_S
            if number == round(seconds * REQUESTS_PER_S / 6):
                begin_mb = process.read_resident_mb()
            if number >= seconds * REQUESTS_PER_S:
                return begin_mb
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(load.send(kinds[number % len(kinds)]))
    raise AssertionError("the count has no end")


async def _send_signals(http: BareHttpClient, watched: list[str], seconds: float) -> None:
    """The last one after nine tenths of the time: then all of the watched ones end."""
    for _ in range(ROUNDS):
        await asyncio.sleep(seconds * 0.9 / ROUNDS)
        for each in watched:
            body = {"name": "go", "payload": 1}
            await http.request("POST", f"/v1/executions/{each}/signal", body)


async def _wait_until(condition: Callable[[], bool]) -> None:
    """What does not come within ten seconds is missing, and counted so."""
    try:
        await wait_until(condition, 10.0)
    except TimeoutError:
        return


def _summarize_latencies(load: RequestLoad) -> Figures:
    found: Figures = {}
    for kind, times in load.latencies_s.items():
        found |= summarize_latency(kind, times)
    return found


async def _is_ready(http: BareHttpClient) -> bool | None:
    return (await http.request("GET", "/health/ready"))["status"] == "ready" or None


async def _start_execution(http: BareHttpClient, name: str) -> str:
    return str((await http.request("POST", f"/v1/workflows/{name}/run", {}))["execution_id"])


async def _read_history(http: BareHttpClient, execution_id: str) -> list[Any]:
    await http.request("GET", f"/v1/executions/{execution_id}/wait?timeout=30")
    found: list[Any] = (await http.request("GET", f"/v1/executions/{execution_id}/history"))[
        "items"
    ]
    return found


@asynccontextmanager
async def _deploy_embedded() -> AsyncIterator[ApiProcess]:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        async with _serve_api("dev", Path(folder), {}) as process:
            yield process


@asynccontextmanager
async def _deploy_on_servers() -> AsyncIterator[ApiProcess]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-")))
        private = stack.enter_context(open_servers(nonce=RandomIdGenerator().nonce()))
        stores = {"REDIS_URL": private.redis_url, "POSTGRES_URL": str(private.postgres_url)}
        async with (
            _run_process(["orchestrator"], folder, stores),
            _run_process(["worker", "--concurrency", "16"], folder, stores),
            _serve_api("api", folder, stores) as process,
        ):
            yield process


@asynccontextmanager
async def _serve_api(role: str, folder: Path, environ: dict[str, str]) -> AsyncIterator[ApiProcess]:
    async with _run_process([role, "--port", "0"], folder, environ) as process:
        if process.stderr is None:
            raise RuntimeError("stderr is not read")
        async for line in process.stderr:
            if line.startswith(READY_PREFIX):
                yield ApiProcess(process, line.removeprefix(READY_PREFIX).decode().strip())
                return


@asynccontextmanager
async def _run_process(
    arguments: list[str], folder: Path, environ: dict[str, str]
) -> AsyncIterator[asyncio.subprocess.Process]:
    quiet = {"RUNNEL_LOG_LEVEL": "error", "RUNNEL_API_RATE_LIMIT": "0"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runnel", *arguments),
        cwd=folder,
        env={**os.environ, **quiet, **environ},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


DEPLOYMENTS = {"embedded": _deploy_embedded, "servers": _deploy_on_servers}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.api", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=DEPLOYMENTS, default="embedded")
    parser.add_argument("seconds", nargs="?", type=parse_positive, default=60)
    chosen = parser.parse_args()
    for figure, value in asyncio.run(measure_load(chosen.kind, chosen.seconds)).items():
        print(f"{figure:20} {value:12.2f}")
