"""A private PostgreSQL: its data folder, its process, and a check that it serves."""

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
    ServerBinary,
    chown_tree,
    find_binary,
    get_unprivileged_user,
    run_as,
)
from runnel.app.private_servers.server import LOOPBACK, PrivateServer, StorageKind
from runnel.errors import ServerFailedError

# An initialised PostgreSQL data folder, made once for each version and kept for the next time.
#
# initdb takes one to two seconds, a copy of what it made takes a tenth of that.

SUPERUSER = "postgres"
# One more whenever initdb gets other arguments: the kept folders of before are then not used.
TEMPLATE_VERSION = 1
CACHE_FOLDER = ".cache/runnel"


def create_data_folder(data: Path, *, binary: ServerBinary, password: str, user: str | None) -> str:
    """Makes `data` the folder of an empty server; returns the password of its superuser.

    That is the `password` given here only for the first server of a version.
    """
    kept = _get_template_path(binary)
    try:
        known = (kept / "password").read_text(encoding="utf-8")
        shutil.copytree(kept / "data", data, copy_function=shutil.copyfile)
    except FileNotFoundError:
        shutil.rmtree(data, ignore_errors=True)
        _run_initdb(data, binary=binary, password=password, user=user)
        with suppress(OSError):  # no home, or none to write to: then the next one takes as long
            _save_template(data, path=kept, password=password)
        return password
    if user is not None:
        chown_tree(data, user)
    return known


def delete_template(binary: ServerBinary) -> None:
    """For a template that no server starts from: it may have been cut short by a power cut."""
    shutil.rmtree(_get_template_path(binary), ignore_errors=True)


def _get_template_path(binary: ServerBinary) -> Path:
    try:
        home = Path.home()
    except RuntimeError:  # a user without a home
        home = Path("/nonexistent")
    return (
        home / CACHE_FOLDER / f"postgres-{binary.version}-{platform.machine()}-{TEMPLATE_VERSION}"
    )


def _run_initdb(data: Path, *, binary: ServerBinary, password: str, user: str | None) -> None:
    secret = data.with_name("password")
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    if user is not None:
        chown_tree(data.parent, user)
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


def _save_template(data: Path, *, path: Path, password: str) -> None:
    """Whole or not at all; of several at a time, one stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix="making-", dir=path.parent))
    try:
        shutil.copytree(data, making / "data", copy_function=shutil.copyfile)
        (making / "password").write_text(password, encoding="utf-8")
        making.rename(path)
    finally:
        shutil.rmtree(making, ignore_errors=True)


# As much of PostgreSQL's protocol as it takes to see that a server serves.

CONNECT_TIMEOUT_S = 1.0
PROTOCOL_VERSION = 3 << 16
AUTH_CLEARTEXT_PASSWORD = 3
MESSAGE_HEADER = struct.Struct("!cI")


def can_log_in(port: int, *, user: str, password: str) -> bool:
    """Logs in; False when nobody listens yet, or when the server still starts or recovers."""
    try:
        with (
            socket.create_connection((LOOPBACK, port), timeout=CONNECT_TIMEOUT_S) as link,
            link.makefile("rb") as replies,
        ):
            link.sendall(_build_startup_message(user))
            while (reply := _read_message(replies))[0] != b"Z":  # ready for a query
                match reply:
                    case (b"E", _):
                        return False
                    case (b"R", body) if struct.unpack_from("!I", body) == (
                        AUTH_CLEARTEXT_PASSWORD,
                    ):
                        link.sendall(_build_message(b"p", password.encode() + b"\0"))
            link.sendall(_build_message(b"X", b""))
            return True
    except (ConnectionError, TimeoutError):
        return False


def _build_startup_message(user: str) -> bytes:
    parameters = b"\0".join([b"user", user.encode(), b"database", b"postgres", b"", b""])
    return _build_message(b"", struct.pack("!I", PROTOCOL_VERSION) + parameters)


def _build_message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _read_message(replies: BufferedReader) -> tuple[bytes, bytes]:
    head = replies.read(MESSAGE_HEADER.size)
    if len(head) < MESSAGE_HEADER.size:
        raise ConnectionResetError("the server ended in the middle of its answer")
    kind, length = MESSAGE_HEADER.unpack(head)
    return kind, replies.read(length - 4)


class PostgresServer(PrivateServer):
    """Survives a kill -9 in any case; `fsync=True` with storage "disk" a power cut too.

    Under root it runs as the user nobody, because PostgreSQL refuses to run as root.
    """

    kind: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": clients are sent away

    def __init__(self, *, fsync: bool = False, storage: StorageKind = "memory") -> None:
        super().__init__(storage=storage, user=get_unprivileged_user())
        self._fsync = fsync

    @property
    def url(self) -> str:
        return f"postgresql://{SUPERUSER}:{self._password}@{LOOPBACK}:{self.port}/postgres"

    def start(self) -> None:
        try:
            super().start()
        except ServerFailedError:
            if not self._was_ready:
                delete_template(self._binary)
            raise

    @property
    def _binary(self) -> ServerBinary:
        return find_binary(POSTGRES, user=self._user)

    def _set_up(self) -> None:
        self._password = create_data_folder(
            self._data, binary=self._binary, password=self._password, user=self._user
        )

    def _build_command(self) -> list[str]:
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

    def _is_ready(self) -> bool:
        return can_log_in(self._port, user=SUPERUSER, password=self._password)
