"""A private Redis or Valkey, whichever there is."""

import shutil
import signal
from pathlib import Path
from typing import ClassVar, Literal

from runnel.errors import ServerFailedError
from runnel.runtime.servers import redis_wire
from runnel.runtime.servers.binaries import REDIS, find_binary
from runnel.runtime.servers.guardian import remove
from runnel.runtime.servers.ports import LOOPBACK
from runnel.runtime.servers.private_server import LOOK_EVERY_S, PrivateServer
from runnel.runtime.servers.scratch import Storage

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
        return redis_wire.answers(self._port, self._password)

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
            info = redis_wire.ask(self._port, self._password, "INFO persistence")
        except redis_wire.TOO_SOON:
            return False
        return "aof_buffer_length:0\r\n" in info
