"""The base of private servers: process, folder and port."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, Protocol, Self, TypeAlias

from runnel.app.private_servers import guardian
from runnel.app.private_servers.guardian import remove_folder
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import ServerFailedError


class ServerProcess:
    """A server process with a guardian. Signals reach its children too; it is always reaped.

    It ends with this process at the latest; its guardian then removes `folder`.
    """

    def __init__(
        self,
        command: list[str],
        *,
        folder: Path,
        log: Path,
        user: str | None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        theirs, ours = os.pipe()
        self._lifeline = os.fdopen(ours, "wb", buffering=0)
        try:
            with os.fdopen(theirs, "rb") as lifeline, log.open("wb") as output:
                self._popen = subprocess.Popen(  # noqa: S603  # a program that find_binary has found, without a shell
                    [
                        *(sys.executable, "-I", "-S", guardian.__file__),
                        *(str(folder), user or "", *command),
                    ],
                    stdin=lifeline,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # For English messages, which tell that a port is in use.
                    env={**(os.environ if environ is None else environ), "LC_ALL": "C"},
                    # Ctrl-C at a terminal must reach this process only, which then stops the
                    # server. The guardian also takes the server's pid from its session.
                    start_new_session=True,
                )
        except BaseException:
            self._lifeline.close()
            raise

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self.wait_for_exit(0)

    @property
    def exit_code(self) -> int | None:
        return self._popen.returncode

    def wait_for_exit(self, seconds: float) -> bool:
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._release_guardian()
        return True

    def send_stop_signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def pause(self) -> None:
        if not self.has_ended:
            guardian.suspend_process_tree(self.pid)

    def resume(self) -> None:
        if not self.has_ended:
            for pid in (*guardian.list_children(self.pid), self.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        if not self.has_ended:
            guardian.kill_process_tree(self.pid)
            self._popen.wait()
        self._release_guardian()

    def _release_guardian(self) -> None:
        if not self._lifeline.closed:
            with suppress(BrokenPipeError):
                self._lifeline.write(b".")
            self._lifeline.close()


# "memory" uses a memory file system if there is one with enough space, otherwise the disk. A new
# PostgreSQL has a thousand small files: 70 ms in memory, 150 ms to 2 s on a busy disk (2026-11).
# Neither loses data after a kill -9. Only "disk" shows the effects of a power cut and of fsync.
StorageKind: TypeAlias = Literal["memory", "disk"]

MEMORY_FOLDER = Path("/dev/shm")  # noqa: S108  # mkdtemp makes a folder with a random name
FREE_BYTES_MIN = (
    512 * 1024 * 1024
)  # a container has 64 MB by default, and an empty PostgreSQL takes 39 MB


def make_folder(prefix: str, *, storage: StorageKind, user: str | None) -> Path:
    """Creates a folder that only this user, or `user`, may enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"runnel-{prefix}-", dir=_choose_parent(storage)))
    if user is not None:
        shutil.chown(folder, user)
    return folder


def _choose_parent(storage: StorageKind) -> Path | None:
    if storage == "memory" and os.access(MEMORY_FOLDER, os.W_OK | os.X_OK):
        space = os.statvfs(MEMORY_FOLDER)
        if space.f_bavail * space.f_frsize >= FREE_BYTES_MIN:
            return MEMORY_FOLDER
    return None


LOOPBACK = "127.0.0.1"
# Below the ports of outgoing connections on Linux (from 32768) and macOS (from 49152). Within that
# range, a client that reconnects to a dead server can get the server's port as its own. It is then
# connected to itself, and the server can't start again.
FIRST_PORT, LAST_PORT = 20_000, 32_000
PORT_TRIES_MAX = 100


class NonceSource(Protocol):
    def nonce(self) -> str: ...


def find_free_port(nonces: NonceSource) -> int:
    """Returns a port that is free now; another process may use it before the server starts."""
    for _ in range(PORT_TRIES_MAX):
        port = FIRST_PORT + int(nonces.nonce(), 16) % (LAST_PORT - FIRST_PORT)
        if _is_port_free(port):
            return port
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def _is_port_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:  # in use, or not allowed
            return False
    return True


START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.002
# Both servers log this text if another process uses their port or their shared memory.
IN_USE_TEXT = "in use"
LOG_LINES_MAX = 5


class PrivateServer(ABC):
    """A real server on a free loopback port, with its own password and temporary folder.

    Server and folder vanish with this process at the latest, even after a kill -9. Every method
    blocks until it is done: in a coroutine, call it with `asyncio.to_thread`.
    """

    kind: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, *, storage: StorageKind, user: str | None = None) -> None:
        self._storage = storage
        self._user = user
        self._clock = RealClock()
        self._ids = RandomIdGenerator()
        self._password = self._ids.nonce() + self._ids.nonce()
        self._process: ServerProcess | None = None
        self._folder: Path | None = None
        self._port = 0
        self._was_ready = False

    @property
    @abstractmethod
    def url(self) -> str:
        """Returns the URL with the password; it stays the same after a restart."""

    @property
    def port(self) -> int:
        if self._folder is None:
            raise self._not_started_error()
        return self._port

    @property
    def folder(self) -> Path:
        """Returns the folder of all files; `close` removes it, and so does the process's death."""
        if self._folder is None:
            raise self._not_started_error()
        return self._folder

    @property
    def pid(self) -> int | None:
        """Returns the process id; None while the server does not run."""
        return self._process.pid if self.is_running and self._process else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._process.has_ended

    @property
    def log(self) -> str:
        """Returns the output of the server since its last start."""
        path = self.folder / "log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Returns when the server answers. A restart uses the same port and data.

        Raises NoServerBinaryError, or ServerFailedError with the last lines of the log.
        """
        if self.is_running:
            return
        try:
            if self._folder is None:
                self._folder = make_folder(self.kind, storage=self._storage, user=self._user)
                self._set_up()
            self._start_until_ready()
        except BaseException:
            if not self._was_ready:
                self.close()
            raise

    def stop(self) -> None:
        """Shuts the server down cleanly, with all data on disk; kills it after 20 s."""
        if self._process is not None:
            self._process.send_stop_signal(self.stop_signal)
            self._process.resume()
            self._process.wait_for_exit(STOP_TIMEOUT_S)
            self.kill()

    def kill(self) -> None:
        """Kills the server and its child processes with SIGKILL; its files stay as they are."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stops the server with SIGSTOP: connections stay open, but it does not answer."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def wipe(self) -> None:
        """Simulates the loss of the disk: kills the server, starts an empty one at its address."""
        self.kill()
        remove_folder(self._data)
        self._set_up()
        self.start()

    def close(self) -> None:
        """Kills the server and removes its folder; `start` then starts a new, empty server."""
        self.kill()
        if self._folder is not None:
            remove_folder(self._folder)
        self._folder = None
        self._was_ready = False

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @abstractmethod
    def _set_up(self) -> None:
        """Creates the data folder of an empty server."""

    @abstractmethod
    def _build_command(self) -> list[str]: ...

    @abstractmethod
    def _is_ready(self) -> bool:
        """Returns within a second whether the server accepts a connection and answers."""

    def _start_until_ready(self) -> None:
        end = self._clock.monotonic() + START_TIMEOUT_S
        while True:
            if not self._was_ready:
                self._port = find_free_port(self._ids)
            self._process = ServerProcess(
                self._build_command(), folder=self.folder, log=self.folder / "log", user=self._user
            )
            if self._wait_until_ready(self._process, end):
                self._was_ready = True
                return
            if IN_USE_TEXT not in self.log or self._clock.monotonic() > end:
                code = self._process.exit_code
                raise self._build_failure(f"ended with exit code {code} while it started")

    def _wait_until_ready(self, process: ServerProcess, end: float) -> bool:
        """Returns False if the process ends before the server is ready."""
        while not process.wait_for_exit(POLL_INTERVAL_S):
            if self._is_ready():
                return True
            if self._clock.monotonic() > end:
                self.kill()
                limit = f"within {START_TIMEOUT_S:g} s"
                raise self._build_failure(f"did not answer on port {self._port} {limit}")
        return False

    def _build_failure(self, problem: str) -> ServerFailedError:
        lines = self.log.splitlines()[-LOG_LINES_MAX:]
        return ServerFailedError(self.kind, problem, log="\n".join(lines))

    def _not_started_error(self) -> ServerFailedError:
        return ServerFailedError(self.kind, "has not been started: call start() first")
