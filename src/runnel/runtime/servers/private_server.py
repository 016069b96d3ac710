"""What every private server can do; a kind of server adds how it is set up, asked and stopped."""

import signal
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from runnel.errors import ServerFailedError
from runnel.runtime.clock import RealClock, RealIds
from runnel.runtime.servers.guardian import remove
from runnel.runtime.servers.ports import free_port
from runnel.runtime.servers.process import ServerProcess
from runnel.runtime.servers.scratch import Storage, make_folder

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
