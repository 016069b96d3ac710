"""A private Redis or Valkey, whichever there is."""

import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar, Literal

from runnel.app.private_servers.binaries import REDIS, find_binary
from runnel.app.private_servers.guardian import remove
from runnel.app.private_servers.server import LOOK_EVERY_S, LOOPBACK, PrivateServer, Storage
from runnel.errors import ServerFailedError

# As much of the Redis protocol as it takes to ask a server how it is.

LIMIT_S = 1.0
TOO_SOON = (ConnectionError, TimeoutError)


def answers(port: int, password: str) -> bool:
    """False as long as it loads its data."""
    try:
        return ask(port, password, "PING") == "PONG"
    except TOO_SOON:
        return False


def ask(port: int, password: str, command: str) -> str:
    """The answer to one command without spaces in its words; an error starts with "-".

    Raises OSError when there is no whole answer within a second.
    """
    with socket.create_connection((LOOPBACK, port), timeout=LIMIT_S) as link:
        link.sendall(f"AUTH {password}\r\n{command}\r\n".encode())
        with link.makefile("r", encoding="utf-8", newline="\r\n") as replies:
            if _line(replies.readline()) != "+OK":
                return ""
            head = _line(replies.readline())
            return replies.read(int(head[1:])) if head.startswith("$") else head.removeprefix("+")


def _line(text: str) -> str:
    if not text.endswith("\r\n"):
        raise ConnectionResetError("the server ended in the middle of its answer")
    return text.removesuffix("\r\n")


WRITTEN_LIMIT_S = 10.0


class RedisServer(PrivateServer):
    """Set up as Runnel asks of a Redis in production: append-only file, nothing ever evicted."""

    kind: ClassVar[str] = "redis"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(
        self,
        *,
        appendfsync: Literal["everysec", "always", "no"] = "everysec",
        storage: Storage = "memory",
    ) -> None:
        super().__init__(storage=storage)
        self._appendfsync = appendfsync

    @property
    def url(self) -> str:
        return f"redis://:{self._password}@{LOOPBACK}:{self.port}/0"

    def save_aof(self) -> Path:
        """A copy of the append-only file with all that was answered before this call.

        It may have more of what clients write meanwhile. Removed with the server.
        """
        self._wait_until_written()
        copies = self.folder / "copies"
        copies.mkdir(exist_ok=True)
        copy = copies / str(len(list(copies.iterdir())))
        self.pause()  # a rewrite changes several files
        try:
            shutil.copytree(self._data, copy, ignore=shutil.ignore_patterns("temp-*"))
        finally:
            self.resume()
        return copy

    def restore_aof(self, copy: Path) -> None:
        """A rollback, as after a power cut: killed, and started again with what was then."""
        self.kill()
        remove(self._data)
        shutil.copytree(copy, self._data)
        self.start()

    def _set_up(self) -> None:
        self._data.mkdir()

    def _command(self) -> list[str]:
        # In a file, because the arguments of a process are seen by everybody on the machine.
        settings = self.folder / "redis.conf"
        settings.touch(mode=0o600)
        settings.write_text(
            "\n".join(
                [
                    f"bind {LOOPBACK}",
                    f"port {self._port}",
                    f"requirepass {self._password}",
                    f"dir {self._data}",
                    "appendonly yes",
                    f"appendfsync {self._appendfsync}",
                    'save ""',
                    "maxmemory-policy noeviction",
                ]
            ),
            encoding="utf-8",
        )
        return [str(find_binary(REDIS).path), str(settings)]

    def _answers(self) -> bool:
        return answers(self._port, self._password)

    def _wait_until_written(self) -> None:
        """A write is held back up to two seconds while the disk is busy with an fsync."""
        end = self._clock.monotonic() + WRITTEN_LIMIT_S
        while not self._has_written():
            if self._process is None or self._process.ends_within(LOOK_EVERY_S):
                raise ServerFailedError(self.kind, "does not run: call start() first")
            if self._clock.monotonic() > end:
                raise self._failure(f"has not written its file within {WRITTEN_LIMIT_S:g} s")

    def _has_written(self) -> bool:
        try:
            info = ask(self._port, self._password, "INFO persistence")
        except TOO_SOON:
            return False
        return "aof_buffer_length:0\r\n" in info
