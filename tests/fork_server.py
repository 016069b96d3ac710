"""Runs commands of `runnel` in forks of a process that has already imported it.

Each command is as isolated as a new process: it has its own pid, streams and signals. A start of
`python -m runnel` takes 0.4 to 0.6 s of processor time, a fork 0.02 s (2026-11).
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
# Modules that commands import lazily. A fork inherits them.
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
    """File descriptors of a command; the caller closes them."""

    input: int
    out: int
    err: int


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


class ForkedCommand:
    """A running command. After a signal, its exit code is the negative signal number."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid = int(connection.recv(_ANSWER_BYTES_MAX))
        self.connection = connection
        self._code: int | None = None

    def poll(self) -> int | None:
        """Returns the exit code, or None while the command runs."""
        if self._code is None and select.select([self.connection], [], [], 0)[0]:
            self.record_end(self.connection.recv(_ANSWER_BYTES_MAX))
        return self._code

    def wait(self, timeout_s: float) -> int:
        """Returns the exit code, or raises TimeoutError if the command still runs."""
        if self._code is None and not select.select([self.connection], [], [], timeout_s)[0]:
            raise TimeoutError(f"the command has not ended within {timeout_s:g} s")
        code = self.poll()
        if code is None:
            raise AssertionError("the command has ended without an exit code")
        return code

    def record_end(self, answer: bytes) -> int:
        """Stores the exit code that was read from the connection, and closes the connection."""
        self._code = int(answer)
        self.connection.close()
        return self._code

    def send(self, number: signal.Signals) -> None:
        """Sends a signal; does nothing if the command has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send(signal.SIGKILL)


class ForkServer:
    """The test's handle of the process that forks for each command."""

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
        self._process.communicate()  # the server exits at the end of its stdin
        self._folder.cleanup()

    def begin(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: Streams,
    ) -> ForkedCommand:
        order = {"words": arguments, "folder": str(folder), "environment": dict(environment)}
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
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        *,
        deadline_s: float,
    ) -> CommandResult:
        """Runs a command with an empty stdin; at the deadline, kills it and raises TimeoutError."""
        out, err = os.pipe(), os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            fork = self.begin(arguments, folder, environment, Streams(nothing, out[1], err[1]))
        finally:
            for number in (nothing, out[1], err[1]):
                os.close(number)
        try:
            output = _read_pipes((out[0], err[0]), deadline_s)
            return CommandResult(fork.wait(deadline_s), *output)
        finally:
            fork.kill()


@cache
def get_fork_server() -> ForkServer:
    """Returns the server that all tests of this process share; the first call starts it."""
    return ForkServer()


def stop_fork_server() -> None:
    if get_fork_server.cache_info().currsize:
        get_fork_server().end()
        get_fork_server.cache_clear()


def _read_pipes(pipes: Sequence[int], deadline_s: float) -> list[str]:
    """Reads each pipe to its end, closes them all and returns their texts."""
    received = dict.fromkeys(pipes, b"")
    is_open = set(pipes)
    end = time.monotonic() + deadline_s
    try:
        while is_open:
            ready, _, _ = select.select(is_open, [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"incomplete output after {deadline_s:g} s: {received}")
            for number in ready:
                data = os.read(number, 65_536)
                received[number] += data
                if not data:
                    is_open.remove(number)
    finally:
        for number in pipes:
            os.close(number)
    return [received[number].decode() for number in pipes]


# -- the server process, which forks for each command ----------------------------------------------


def main(listener: socket.socket) -> None:
    """Serves commands until its stdin ends, which happens when the tests end."""
    for name in (*PRELOADED_ALONE, *chain.from_iterable(map(list_modules, PRELOADED))):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the garbage collector of a fork skips these objects
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        _reap_children()
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                _serve_command(connection)


def list_modules(package: str) -> Iterator[str]:
    path = importlib.import_module(package).__path__
    return (module.name for module in pkgutil.walk_packages(path, f"{package}."))


def _reap_children() -> None:
    """Reaps the forks of `main` that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def _serve_command(connection: socket.socket) -> NoReturn:
    """Reads one order, runs its command and sends the pid and then the exit code."""
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
    os.kill(os.getpid(), signal.SIGKILL)  # no exit handlers run, so coverage does not count it
    raise AssertionError("the process has survived SIGKILL")


def _run_command(order: dict[str, Any], streams: Sequence[int]) -> NoReturn:
    from runnel.cli.main import run_command

    # Under `nohup` the tests ignore SIGHUP, and a child inherits that.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # The streams from before the fork still have the settings of their former files.
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
    sys.argv = ["runnel", *order["words"]]
    _exit(run_command(order["words"]))


def _exit(code: int) -> NoReturn:
    """Exits as Python does, but does not free memory, which takes 65 of the 80 ms of a command."""
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - it waits for threads
    atexit._run_exitfuncs()  # noqa: SLF001 - there is no other way to call them
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
