"""What every private server can do; a kind of server adds how it is set up, asked and stopped."""

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
from runnel.app.private_servers.guardian import remove
from runnel.engine.clock import RealClock, RealIds
from runnel.errors import ServerFailedError

# One server process: started with a guardian, signalled with all its children, always reaped.


class ServerProcess:
    """Ends with this process at the latest; `folder` is then removed by its guardian."""

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
                self._popen = subprocess.Popen(  # noqa: S603  # a server that was looked for, no shell
                    [
                        *(sys.executable, "-I", "-S", guardian.__file__),
                        *(str(folder), user or "", *command),
                    ],
                    stdin=lifeline,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # English messages: a port that is taken is recognised by them.
                    env={**(os.environ if environ is None else environ), "LC_ALL": "C"},
                    # Ctrl-C at a terminal is for us, who then decide about the server; and the
                    # guardian learns the server's pid from its session.
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
        return self.ends_within(0)

    @property
    def exit_code(self) -> int | None:
        return self._popen.returncode

    def ends_within(self, seconds: float) -> bool:
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        self._let_guardian_go()
        return True

    def ask_to_end(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def pause(self) -> None:
        if not self.has_ended:
            guardian.stopped_family(self.pid)

    def resume(self) -> None:
        if not self.has_ended:
            for pid in (*guardian.children_of(self.pid), self.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        if not self.has_ended:
            guardian.kill_family(self.pid)
            self._popen.wait()
        self._let_guardian_go()

    def _let_guardian_go(self) -> None:
        if not self._lifeline.closed:
            with suppress(BrokenPipeError):
                self._lifeline.write(b".")
            self._lifeline.close()


# The temporary folder of a server.

# "memory": a memory file system where there is one with room, else as "disk". A new PostgreSQL is
# a thousand small files: 70 ms in memory, 150 ms to 2 s on a disk that others use too (2026-11).
# A kill -9 loses nothing in either; what a power cut or an fsync costs, only "disk" can tell.
Storage: TypeAlias = Literal["memory", "disk"]

MEMORY = Path("/dev/shm")  # noqa: S108  # the folder is made by mkdtemp, with a name nobody can guess
ROOM_BYTES = 512 * 1024 * 1024  # a container's own default is 64 MB, and PostgreSQL starts with 39


def make_folder(prefix: str, *, storage: Storage, user: str | None) -> Path:
    """A new folder that only this user, or the one it is made for, may enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"runnel-{prefix}-", dir=_parent(storage)))
    if user is not None:
        shutil.chown(folder, user)
    return folder


def _parent(storage: Storage) -> Path | None:
    if storage == "memory" and os.access(MEMORY, os.W_OK | os.X_OK):
        room = os.statvfs(MEMORY)
        if room.f_bavail * room.f_frsize >= ROOM_BYTES:
            return MEMORY
    return None


# Free ports on the loopback address.

LOOPBACK = "127.0.0.1"
# Below the ports that Linux (32768) and macOS (49152) give to outgoing connections: a client that
# tries to reconnect to a dead server within that range can get the server's port as its own, and
# is then connected to itself while the server can't start again.
FIRST, LAST = 20_000, 32_000
TRIES = 100


class Chance(Protocol):
    def nonce(self) -> str: ...


def free_port(chance: Chance) -> int:
    """Free a moment ago: who starts a server on it must be ready for it to be taken."""
    for _ in range(TRIES):
        port = FIRST + int(chance.nonce(), 16) % (LAST - FIRST)
        if _is_free(port):
            return port
    with socket.create_server((LOOPBACK, 0)) as probe:
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:  # taken, or kept from us
            return False
    return True


READY_LIMIT_S = 20.0
STOP_LIMIT_S = 20.0
LOOK_EVERY_S = 0.002
# What both servers write when another process still holds their port, or their memory.
TAKEN = "in use"
LOG_LINES = 5


class PrivateServer(ABC):
    """A real server on a free loopback port, with a password and a temporary folder of its own.

    It ends with this process at the latest, even when that is killed with -9, and its folder with
    it. Every method blocks until it is done: in a coroutine, call it by `asyncio.to_thread`.
    """

    kind: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, *, storage: Storage, user: str | None = None) -> None:
        self._storage = storage
        self._user = user
        self._clock = RealClock()
        self._chance = RealIds()
        self._password = self._chance.nonce() + self._chance.nonce()
        self._process: ServerProcess | None = None
        self._folder: Path | None = None
        self._port = 0
        self._has_answered = False

    @property
    @abstractmethod
    def url(self) -> str:
        """With the password; the same after each restart."""

    @property
    def port(self) -> int:
        if self._folder is None:
            raise self._not_started()
        return self._port

    @property
    def folder(self) -> Path:
        """All its files: removed by `close`, and when this process dies."""
        if self._folder is None:
            raise self._not_started()
        return self._folder

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        return self._process.pid if self.is_running and self._process else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and not self._process.has_ended

    @property
    def log(self) -> str:
        """What the server wrote since its last start."""
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
        """Returns when it answers; on the same port and data as before, if it ever did.

        Raises NoServerBinaryError, or ServerFailedError with the last lines of its log.
        """
        if self.is_running:
            return
        try:
            if self._folder is None:
                self._folder = make_folder(self.kind, storage=self._storage, user=self._user)
                self._set_up()
            self._start_until_answered()
        except BaseException:
            if not self._has_answered:
                self.close()
            raise

    def stop(self) -> None:
        """Cleanly: all data is on disk. Kills when that takes longer than 20 s."""
        if self._process is not None:
            self._process.ask_to_end(self.stop_signal)
            self._process.resume()
            self._process.ends_within(STOP_LIMIT_S)
            self.kill()

    def kill(self) -> None:
        """As kill -9 does, for the server and all its processes; data stays as it was written."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Alive, connected, and silent, as after SIGSTOP: that is what it gets."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def wipe(self) -> None:
        """As after the loss of its disk: killed, and started again at the same address."""
        self.kill()
        remove(self._data)
        self._set_up()
        self.start()

    def close(self) -> None:
        """Ends it and removes its folder; a start after that is one of a new server."""
        self.kill()
        if self._folder is not None:
            remove(self._folder)
        self._folder = None
        self._has_answered = False

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @abstractmethod
    def _set_up(self) -> None:
        """Makes the data folder of an empty server."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool:
        """Whether it takes a connection and serves it, within a moment."""

    def _start_until_answered(self) -> None:
        end = self._clock.monotonic() + READY_LIMIT_S
        while True:
            if not self._has_answered:
                self._port = free_port(self._chance)
            self._process = ServerProcess(
                self._command(), folder=self.folder, log=self.folder / "log", user=self._user
            )
            if self._comes_up(self._process, end):
                self._has_answered = True
                return
            if TAKEN not in self.log or self._clock.monotonic() > end:
                code = self._process.exit_code
                raise self._failure(f"ended with exit code {code} while it started")

    def _comes_up(self, process: ServerProcess, end: float) -> bool:
        """False when it has ended instead."""
        while not process.ends_within(LOOK_EVERY_S):
            if self._answers():
                return True
            if self._clock.monotonic() > end:
                self.kill()
                limit = f"within {READY_LIMIT_S:g} s"
                raise self._failure(f"did not answer on port {self._port} {limit}")
        return False

    def _failure(self, problem: str) -> ServerFailedError:
        lines = self.log.splitlines()[-LOG_LINES:]
        return ServerFailedError(self.kind, problem, log="\n".join(lines))

    def _not_started(self) -> ServerFailedError:
        return ServerFailedError(self.kind, "has not been started: call start() first")
