"""A private Redis server, or Valkey if that is installed."""

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

# A minimal client of the Redis protocol, to check the state of a server.

CONNECT_TIMEOUT_S = 1.0
NOT_READY_ERRORS = (ConnectionError, TimeoutError)


def is_ready(port: int, password: str) -> bool:
    """Returns False while the server starts or loads its data."""
    try:
        return send_command(port, password, "PING") == "PONG"
    except NOT_READY_ERRORS:
        return False


def send_command(port: int, password: str, command: str) -> str:
    """Sends a command whose arguments have no spaces; returns the reply, an error with "-" first.

    Raises OSError if the complete reply does not arrive within a second.
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
        raise ConnectionResetError("the server closed the connection before its reply was complete")
    return text.removesuffix("\r\n")


WRITE_TIMEOUT_S = 10.0


class RedisServer(PrivateServer):
    """A server with the settings that Runnel needs in production: append-only, no eviction."""

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
        """Returns a copy of the append-only file with all writes acknowledged before this call.

        It may contain later writes too. The copy is deleted with the server.
        """
        self._wait_until_written()
        copies = self.folder / "copies"
        copies.mkdir(exist_ok=True)
        copy = copies / str(len(list(copies.iterdir())))
        self.pause()  # a rewrite would change several files during the copy
        try:
            shutil.copytree(self._data, copy, ignore=shutil.ignore_patterns("temp-*"))
        finally:
            self.resume()
        return copy

    def restore_aof(self, copy: Path) -> None:
        """Simulates the rollback of a power cut: kills the server and starts it with the copy."""
        self.kill()
        remove_folder(self._data)
        shutil.copytree(copy, self._data)
        self.start()

    def _set_up(self) -> None:
        self._data.mkdir()

    def _build_command(self) -> list[str]:
        # The password is in a file, because every user can see the arguments of a process.
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
        """Waits up to WRITE_TIMEOUT_S. Redis delays a write up to 2 s while an fsync is running."""
        end = self._clock.monotonic() + WRITE_TIMEOUT_S
        while not self._has_written():
            if self._process is None or self._process.wait_for_exit(POLL_INTERVAL_S):
                raise ServerFailedError(self.kind, "does not run: call start() first")
            if self._clock.monotonic() > end:
                raise self._build_failure(
                    f"has not written its data file within {WRITE_TIMEOUT_S:g} s"
                )

    def _has_written(self) -> bool:
        try:
            info = send_command(self._port, self._password, "INFO persistence")
        except NOT_READY_ERRORS:
            return False
        return "aof_buffer_length:0\r\n" in info
