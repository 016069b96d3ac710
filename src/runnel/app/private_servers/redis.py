"""A private Redis or Valkey, whichever there is."""

import shutil
import signal
import socket
from pathlib import Path
from typing import ClassVar, Literal

from runnel.app.private_servers.binaries import REDIS, find_binary
from runnel.app.private_servers.guardian import remove_folder
from runnel.app.private_servers.server import (
    LOOPBACK,
    POLL_INTERVAL_S,
    PrivateServer,
    StorageKind,
)
from runnel.errors import ServerFailedError

# As much of the Redis protocol as it takes to ask a server how it is.

CONNECT_TIMEOUT_S = 1.0
NOT_READY_ERRORS = (ConnectionError, TimeoutError)


def is_ready(port: int, password: str) -> bool:
    """False as long as it loads its data."""
    try:
        return send_command(port, password, "PING") == "PONG"
    except NOT_READY_ERRORS:
        return False


def send_command(port: int, password: str, command: str) -> str:
    """The answer to one command without spaces in its words; an error starts with "-".

    Raises OSError when there is no whole answer within a second.
    """
    with socket.create_connection((LOOPBACK, port), timeout=CONNECT_TIMEOUT_S) as link:
        link.sendall(f"AUTH {password}\r\n{command}\r\n".encode())
        with link.makefile("r", encoding="utf-8", newline="\r\n") as replies:
            if _strip_line_end(replies.readline()) != "+OK":
                return ""
            head = _strip_line_end(replies.readline())
            return replies.read(int(head[1:])) if head.startswith("$") else head.removeprefix("+")


def _strip_line_end(text: str) -> str:
    if not text.endswith("\r\n"):
        raise ConnectionResetError("the server ended in the middle of its answer")
    return text.removesuffix("\r\n")


WRITE_TIMEOUT_S = 10.0


class RedisServer(PrivateServer):
    """Set up as Runnel asks of a Redis in production: append-only file, nothing ever evicted."""

    kind: ClassVar[str] = "redis"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(
        self,
        *,
        appendfsync: Literal["everysec", "always", "no"] = "everysec",
        storage: StorageKind = "memory",
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
        remove_folder(self._data)
        shutil.copytree(copy, self._data)
        self.start()

    def _set_up(self) -> None:
        self._data.mkdir()

    def _build_command(self) -> list[str]:
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

    def _is_ready(self) -> bool:
        return is_ready(self._port, self._password)

    def _wait_until_written(self) -> None:
        """A write is held back up to two seconds while the disk is busy with an fsync."""
        end = self._clock.monotonic() + WRITE_TIMEOUT_S
        while not self._has_written():
            if self._process is None or self._process.wait_for_exit(POLL_INTERVAL_S):
                raise ServerFailedError(self.kind, "does not run: call start() first")
            if self._clock.monotonic() > end:
                raise self._build_failure(f"has not written its file within {WRITE_TIMEOUT_S:g} s")

    def _has_written(self) -> bool:
        try:
            info = send_command(self._port, self._password, "INFO persistence")
        except NOT_READY_ERRORS:
            return False
        return "aof_buffer_length:0\r\n" in info
