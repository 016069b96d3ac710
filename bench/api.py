"""Measures the HTTP API under load: `python -m bench.api [embedded|servers] [seconds]`.

The load is 500 streams of server-sent events and 200 requests a second (run, read, wait, list) to
one API process. 400 streams follow one of 40 executions, 100 follow all. Everything runs on this
machine.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from bench.numbers import parse_positive
from runnel.bench.figures import Figures, summarize_latency
from runnel.bench.machine import read_cpu_s, read_resident_mb
from runnel.bench.servers import open_servers
from runnel.engine.clock import RandomIdGenerator, RealClock

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

WATCHED_EXECUTIONS = 40
FOLLOWERS_EACH = 10
FOLLOWERS_OF_ALL = 100
REQUESTS_PER_S = 200
ROUNDS = 10
TIMEOUT_S = 60.0
POLL_S = 0.005
READY_POLL_S = 0.1
READY_PREFIX = b"Runnel answers on "
HELLO_WORKFLOW = {
    "name": "hello",
    "nodes": [{"id": "greet", "handler": "output", "config": {"text": "hi"}}],
}
# Each signal starts the wait of the next node, so that there are events all the time.
SIGNAL_NODE = {"handler": "wait_for_signal", "config": {"signal": "go"}}
LONG_WORKFLOW = {
    "name": "long",
    "nodes": [
        {"id": f"n{number}", **SIGNAL_NODE, "dependencies": [f"n{number - 1}"] if number else []}
        for number in range(ROUNDS)
    ],
}


class WrongAnswerError(Exception):
    """The status of a response was not 2xx."""


class BareHttpClient:
    """An HTTP client on plain sockets, because httpx needs as much time as the server.

    It reuses connections, and has as many as there are concurrent requests.
    """

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)
        self._idle_connections: list[Connection] = []

    async def request(self, method: str, path: str, body: object = None) -> Any:
        """Returns the decoded body of the response; raises WrongAnswerError or OSError."""
        connection = (
            self._idle_connections.pop() if self._idle_connections else await self.connect()
        )
        reader, writer = connection
        data = b"" if body is None else msgspec.json.encode(body)
        writer.write(self.build_head(method, path, len(data)) + data)
        head = await reader.readuntil(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length: ")
        answer = await reader.readexactly(int(length.partition(b"\r\n")[0]))
        self._idle_connections.append(connection)
        if not head.startswith(b"HTTP/1.1 2"):
            raise WrongAnswerError(f"{method} {path}: {answer.decode()}")
        return msgspec.json.decode(answer)

    async def connect(self) -> Connection:
        return await asyncio.open_connection(self.host, self.port)

    def build_head(self, method: str, path: str, size: int = 0) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}"]
        if size:
            lines += ["Content-Type: application/json", f"Content-Length: {size}"]
        return "\r\n".join([*lines, "", ""]).encode()

    def close(self) -> None:
        for _, writer in self._idle_connections:
            writer.close()


class ApiProcess:
    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url
        self.pid = process.pid

    def read_cpu_s(self) -> float:
        return read_cpu_s([self.pid])

    def read_resident_mb(self) -> float:
        return read_resident_mb(self.pid) or 0.0


@dataclass
class StreamFollower:
    """Counts the messages of one stream by event; `buffer` holds an incomplete message."""

    path: str
    events: dict[str, int] = field(default_factory=dict)
    completed: int = 0
    has_ended: bool = False
    buffer: bytes = b""

    async def follow(self, url: str) -> None:
        http = BareHttpClient(url)
        reader, writer = await http.connect()
        writer.write(http.build_head("GET", self.path))
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        try:
            while not self.has_ended and (chunk := await reader.read(65_536)):
                self.parse(chunk)
        finally:
            writer.close()

    def parse(self, chunk: bytes) -> None:
        *messages, self.buffer = (self.buffer + chunk).split(b"\n\n")
        for message in messages:
            _, is_event, event = message.partition(b"\nevent: ")
            if is_event:
                name = event.partition(b"\n")[0].decode()
                self.events[name] = self.events.get(name, 0) + 1
                self.completed += b'"status":"COMPLETED"' in event
                self.has_ended = name == "end"

    @property
    def message_count(self) -> int:
        return sum(self.events.values())


@dataclass(frozen=True)
class Audience:
    """All followers: FOLLOWERS_EACH per execution, and those of all executions."""

    of_one: list[StreamFollower]
    of_all: list[StreamFollower]

    @classmethod
    def of(cls, execution_ids: list[str]) -> "Audience":
        paths = [f"/v1/executions/{execution_id}/events" for execution_id in execution_ids]
        return cls(
            of_one=[StreamFollower(path) for path in paths for _ in range(FOLLOWERS_EACH)],
            of_all=[StreamFollower("/v1/events") for _ in range(FOLLOWERS_OF_ALL)],
        )

    @property
    def followers(self) -> list[StreamFollower]:
        return [*self.of_one, *self.of_all]

    def has_started(self) -> bool:
        return all(follower.message_count for follower in self.followers)

    def count_messages(self) -> int:
        return sum(follower.message_count for follower in self.followers)

    def count_missing(self, expected: list[int], completed: int) -> int:
        """Counts missing messages. `expected` is the number of messages per followed execution,
        `completed` the number of ended executions.
        """
        counts = [count for count in expected for _ in range(FOLLOWERS_EACH)]
        return (
            sum(
                abs(n - follower.message_count)
                for n, follower in zip(counts, self.of_one, strict=True)
            )
            + sum(abs(completed - follower.completed) for follower in self.of_all)
            + sum(follower.events.get("gap", 0) for follower in self.of_all)
        )


@dataclass
class RequestLoad:
    """The sent requests, their latencies and their errors."""

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
        await wait_until_ready(http)
        for document in (HELLO_WORKFLOW, LONG_WORKFLOW):
            await http.request("POST", "/v1/workflows", document)
        load = RequestLoad(http, execution_ids=[await _start_execution(http, "hello")])
        watched_ids = [await _start_execution(http, "long") for _ in range(WATCHED_EXECUTIONS)]
        audience = Audience.of(watched_ids)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(f.follow(process.url)) for f in audience.followers]
            await _wait_until(audience.has_started, TIMEOUT_S)
            first, cpu_s_before = len(load.execution_ids), process.read_cpu_s()
            async with asyncio.TaskGroup() as busy_group:
                busy_group.create_task(_send_signals(http, watched_ids, seconds))
                begin_mb = await _send_requests(load, seconds, process)
            cpu_s, end_mb = process.read_cpu_s() - cpu_s_before, process.read_resident_mb()
            completed = len(load.execution_ids) - first + WATCHED_EXECUTIONS
            expected = [len(await _read_history(http, id_)) + 1 for id_ in watched_ids]
            await _wait_for_messages(audience, completed)
            for task in tasks:
                task.cancel()
    for error in load.errors[:5]:
        print(error, file=sys.stderr)
    return {
        **_summarize_latencies(load),
        "requests_per_s": sum(map(len, load.latencies_s.values())) / seconds,
        "errors": float(len(load.errors)),
        "events_told": float(audience.count_messages()),
        "events_missing": float(audience.count_missing(expected, completed)),
        "api_processors": cpu_s / seconds,
        "resident_mb_begin": begin_mb,
        "resident_mb_end": end_mb,
        "machine_load": os.getloadavg()[0],
    }


async def _send_requests(load: RequestLoad, seconds: float, process: ApiProcess) -> float:
    """Sends requests at a fixed rate, without waiting for answers.

    Returns the memory of the process after a sixth of the time.
    """
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
    raise AssertionError("unreachable: the counter is endless")


async def _send_signals(http: BareHttpClient, execution_ids: list[str], seconds: float) -> None:
    """Sends all signals within nine tenths of the time, so that all executions end."""
    for _ in range(ROUNDS):
        await asyncio.sleep(seconds * 0.9 / ROUNDS)
        for execution_id in execution_ids:
            body = {"name": "go", "payload": 1}
            await http.request("POST", f"/v1/executions/{execution_id}/signal", body)


async def _wait_for_messages(audience: Audience, completed: int) -> None:
    """Waits up to ten seconds for the last messages; later ones count as missing."""
    with suppress(TimeoutError):
        await _wait_until(lambda: all(follower.has_ended for follower in audience.of_one), 10.0)
    with suppress(TimeoutError):
        await _wait_until(
            lambda: all(follower.completed >= completed for follower in audience.of_all), 10.0
        )


async def _wait_until(condition: Callable[[], bool], timeout_s: float) -> None:
    """Waits for the condition; raises TimeoutError after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await RealClock().sleep(POLL_S)


async def wait_until_ready(http: BareHttpClient) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while (await http.request("GET", "/health/ready"))["status"] != "ready":
            await RealClock().sleep(READY_POLL_S)


def _summarize_latencies(load: RequestLoad) -> Figures:
    figures: Figures = {}
    for kind, latencies_s in load.latencies_s.items():
        figures |= summarize_latency(kind, latencies_s)
    return figures


async def _start_execution(http: BareHttpClient, name: str) -> str:
    return str((await http.request("POST", f"/v1/workflows/{name}/run", {}))["execution_id"])


async def _read_history(http: BareHttpClient, execution_id: str) -> list[Any]:
    await http.request("GET", f"/v1/executions/{execution_id}/wait?timeout=30")
    page = await http.request("GET", f"/v1/executions/{execution_id}/history")
    entries: list[Any] = page["items"]
    return entries


@asynccontextmanager
async def _deploy_embedded() -> AsyncIterator[ApiProcess]:
    with tempfile.TemporaryDirectory(prefix="runnel-bench-") as folder:
        async with serve_api(["dev"], Path(folder), {}) as process:
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
            serve_api(["api"], folder, stores) as process,
        ):
            yield process


@asynccontextmanager
async def serve_api(
    arguments: list[str], folder: Path, environ: dict[str, str]
) -> AsyncIterator[ApiProcess]:
    """Runs a command of `runnel` that serves the API, until the end of the block."""
    async with _run_process([*arguments, "--port", "0"], folder, environ) as process:
        if process.stderr is None:
            raise RuntimeError("the process has no stderr pipe")
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
