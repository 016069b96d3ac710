"""Commands of `runnel` in forks of a process that has imported it: as separate as a start of the
program, each with a pid, streams and signals of its own, without the cold start.

A start of `python -m runnel` takes 0.4 to 0.6 s of processor time, a fork 0.02 (2026-11).
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).parents[1]
# What commands import late: a fork has it already.
PRELOADED = ("runnel.api", "runnel.authoring", "runnel.backends", "runnel.cli", "runnel.core")
PRELOADED_ALONE = (
    "jsonschema",
    "hiredis",
    "runnel.app.wiring",
    "runnel.app.decorated",
    "uvicorn",
    "yaml",
)
_ORDER_BYTES_MAX = 200_000
_ANSWER_BYTES_MAX = 20


class Streams(NamedTuple):
    """File descriptors, which the caller closes."""

    input: int
    out: int
    err: int


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


class ForkedCommand:
    """One command that runs. Its exit code is minus the signal that ended it, as elsewhere."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = int(connection.recv(_ANSWER_BYTES_MAX))
        self.connection = connection
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        if self._code is None and select.select([self.connection], [], [], 0)[0]:
            self.ended(self.connection.recv(_ANSWER_BYTES_MAX))
        return self._code

    def wait(self, timeout_s: float) -> int:
        """Raises TimeoutError."""
        if self._code is None and not select.select([self.connection], [], [], timeout_s)[0]:
            raise TimeoutError(f"it has not ended within {timeout_s:g} s")
        code = self.poll()
        if code is None:
            raise AssertionError("it has ended without an exit code")
        return code

    def ended(self, answer: bytes) -> int:
        """To be told by who read the answer from the connection."""
        self._code = int(answer)
        self.connection.close()
        return self._code

    def send(self, number: signal.Signals) -> None:
        """To one that has ended: nothing."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)


class ForkServer:
    """The process that is forked, as seen by a test."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="forks-")
        self._address = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fork_server", str(listener.fileno())],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )

    def end(self) -> None:
        self._process.communicate()  # the end of its stdin ends it
        self._folder.cleanup()

    def begin(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], streams: Streams
    ) -> ForkedCommand:
        order = {"words": words, "folder": str(folder), "environment": dict(environment)}
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(self._address)
            socket.send_fds(connection, [json.dumps(order).encode()], streams)
            return ForkedCommand(connection)
        except BaseException:
            connection.close()
            raise

    def run(
        self,
        words: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        deadline_s: float,
    ) -> CommandResult:
        """It has nothing to read. Raises TimeoutError, and then it has been killed."""
        out, err = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            fork = self.begin(words, folder, environment, Streams(nothing, out[1], err[1]))
        finally:
            for number in (nothing, out[1], err[1]):
                os.close(number)
        try:
            said = _read_pipes((out[0], err[0]), deadline_s)
            return CommandResult(fork.wait(deadline_s), *said)
        finally:
            fork.kill()


@cache
def get_fork_server() -> ForkServer:
    """One for all tests of this process, started when it is first needed."""
    return ForkServer()


def stop_fork_server() -> None:
    if get_fork_server.cache_info().currsize:
        get_fork_server().end()
        get_fork_server.cache_clear()


def _read_pipes(pipes: Sequence[int], deadline_s: float) -> list[str]:
    """What comes out of each until all are closed at the other end; then they are closed here."""
    found = dict.fromkeys(pipes, b"")
    is_open = set(pipes)
    end = time.monotonic() + deadline_s
    try:
        while is_open:
            ready, _, _ = select.select(is_open, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"only said within {deadline_s:g} s: {found}")
            for number in ready:
                data = os.read(number, 65_536)
                found[number] += data
                if not data:
                    is_open.remove(number)
    finally:
        for number in pipes:
            os.close(number)
    return [found[number].decode() for number in pipes]


# -- the process that is forked --------------------------------------------------------------------


def main(listener: socket.socket) -> None:
    """Until the end of its stdin, which is that of the tests."""
    for name in (*PRELOADED_ALONE, *chain.from_iterable(map(list_modules, PRELOADED))):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a fork need not look at it again
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        _reap_children()
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                _serve_command(connection)


def list_modules(package: str) -> Iterator[str]:
    path = importlib.import_module(package).__path__
    return (found.name for found in pkgutil.walk_packages(path, f"{package}."))


def _reap_children() -> None:
    """Those of `_serve_command` that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _serve_command(connection: socket.socket) -> NoReturn:
    """One command, from its order to its exit code."""
    message, streams, _, _ = socket.recv_fds(connection, _ORDER_BYTES_MAX, len(Streams._fields))
    command = os.fork()
    if command == 0:
        connection.close()
        _run_command(json.loads(message), streams)
    for number in streams:
        os.close(number)
    connection.send(str(command).encode())
    _, status = os.waitpid(command, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())
    os.kill(os.getpid(), signal.SIGKILL)  # so that a measurement of coverage does not count it
    raise AssertionError("nothing survives that")


def _run_command(order: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    from runnel.cli.main import run_command

    # Whoever runs the tests by `nohup` ignores it, and so would all that they start.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, given in enumerate(streams):
        os.dup2(given, number)
        os.close(given)
    # New ones: those of before the fork remember what kind of file theirs was.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    sys.argv = ["runnel", *order["words"]]
    _exit(run_command(order["words"]))


def _exit(code: int) -> NoReturn:
    """As Python ends, but for tidying its memory: 65 of the 80 ms that a command takes here."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - it waits for threads
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to call them
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
