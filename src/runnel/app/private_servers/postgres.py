"""A private PostgreSQL."""

import platform
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import ClassVar

from runnel.app.private_servers.binaries import (
    POSTGRES,
    Binary,
    find_binary,
    give,
    run_as,
    user_instead_of_root,
)
from runnel.app.private_servers.server import LOOPBACK, PrivateServer, Storage
from runnel.errors import ServerFailedError

# An initialised PostgreSQL data folder, made once for each version and kept for the next time.
#
# initdb takes one to two seconds, a copy of what it made takes a tenth of that.

SUPERUSER = "postgres"
# One more whenever initdb gets other arguments: the kept folders of before are then not used.
RECIPE = 1
CACHE = ".cache/runnel"


def make_data(data: Path, *, binary: Binary, password: str, user: str | None) -> str:
    """Makes `data` the folder of an empty server; returns the password of its superuser.

    That is the `password` given here only for the first server of a version.
    """
    kept = _place(binary)
    try:
        known = (kept / "password").read_text(encoding="utf-8")
        shutil.copytree(kept / "data", data, copy_function=shutil.copyfile)
    except FileNotFoundError:
        shutil.rmtree(data, ignore_errors=True)
        _initdb(data, binary=binary, password=password, user=user)
        with suppress(OSError):  # no home, or none to write to: then the next one takes as long
            _keep(data, place=kept, password=password)
        return password
    if user is not None:
        give(data, user)
    return known


def forget(binary: Binary) -> None:
    """For a template that no server starts from: it may have been cut short by a power cut."""
    shutil.rmtree(_place(binary), ignore_errors=True)


def _place(binary: Binary) -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        home = Path("/nonexistent")
    return home / CACHE / f"postgres-{binary.version}-{platform.machine()}-{RECIPE}"


def _initdb(data: Path, *, binary: Binary, password: str, user: str | None) -> None:
    secret = data.with_name("password")
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    if user is not None:
        give(data.parent, user)
    try:
        run_as(
            user,
            [
                str(binary.path.with_name("initdb")),
                *("--pgdata", str(data)),
                *("--username", SUPERUSER, "--pwfile", str(secret)),
                # Not the slow challenge and response: it never leaves the machine.
                "--auth=password",
                *("--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"),
            ],
        )
    except subprocess.CalledProcessError as error:
        problem = f"could not be set up, initdb ended with exit code {error.returncode}"
        raise ServerFailedError("postgres", problem, log=error.stdout) from error
    finally:
        secret.unlink()


def _keep(data: Path, *, place: Path, password: str) -> None:
    """Whole or not at all; of several at a time, one stays."""
    place.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=place.parent))
    try:
        shutil.copytree(data, making / "data", copy_function=shutil.copyfile)
        (making / "password").write_text(password, encoding="utf-8")
        making.rename(place)
    finally:
        shutil.rmtree(making, ignore_errors=True)


# As much of PostgreSQL's protocol as it takes to see that a server serves.

LIMIT_S = 1.0
PROTOCOL = 3 << 16
SEND_PASSWORD = 3
HEADER = struct.Struct("!cI")


def answers(port: int, *, user: str, password: str) -> bool:
    """Logs in; False when nobody listens yet, or when the server still starts or recovers."""
    try:
        with (
            socket.create_connection((LOOPBACK, port), timeout=LIMIT_S) as link,
            link.makefile("rb") as replies,
        ):
            link.sendall(_startup(user))
            while (reply := _next(replies))[0] != b"Z":  # ready for a query
                match reply:
                    case (b"E", _):
                        return False
                    case (b"R", body) if struct.unpack_from("!I", body) == (SEND_PASSWORD,):
                        link.sendall(_message(b"p", password.encode() + b"\0"))
            link.sendall(_message(b"X", b""))
            return True
    except (ConnectionError, TimeoutError):
        return False


def _startup(user: str) -> bytes:
    words = b"\0".join([b"user", user.encode(), b"database", b"postgres", b"", b""])
    return _message(b"", struct.pack("!I", PROTOCOL) + words)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _next(replies: BufferedReader) -> tuple[bytes, bytes]:
    head = replies.read(HEADER.size)
    if len(head) < HEADER.size:
        raise ConnectionResetError("the server ended in the middle of its answer")
    kind, length = HEADER.unpack(head)
    return kind, replies.read(length - 4)


class PostgresServer(PrivateServer):
    """Survives a kill -9 in any case; `fsync=True` with storage "disk" a power cut too.

    Under root it runs as the user nobody, because PostgreSQL refuses to run as root.
    """

    kind: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": clients are sent away

    def __init__(self, *, fsync: bool = False, storage: Storage = "memory") -> None:
        super().__init__(storage=storage, user=user_instead_of_root())
        self._fsync = fsync

    @property
    def url(self) -> str:
        return f"postgresql://{SUPERUSER}:{self._password}@{LOOPBACK}:{self.port}/postgres"

    def start(self) -> None:
        try:
            super().start()
        except ServerFailedError:
            if not self._has_answered:
                forget(self._binary)
            raise

    @property
    def _binary(self) -> Binary:
        return find_binary(POSTGRES, user=self._user)

    def _set_up(self) -> None:
        self._password = make_data(
            self._data, binary=self._binary, password=self._password, user=self._user
        )

    def _command(self) -> list[str]:
        switch = "on" if self._fsync else "off"
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self._port),
            "unix_socket_directories": "",
            "fsync": switch,
            "full_page_writes": switch,
        }
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [str(self._binary.path), "-D", str(self._data), *options]

    def _answers(self) -> bool:
        return answers(self._port, user=SUPERUSER, password=self._password)
