"""A private PostgreSQL server: data folder, process, and readiness check."""

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

# A template of the data folder, made once per PostgreSQL version and kept in the user's cache.
#
# initdb takes one to two seconds; a copy of the template takes a tenth of that.

SUPERUSER = "postgres"
# Must be increased when the arguments of initdb change, so that old templates are not used.
TEMPLATE_VERSION = 1
CACHE_FOLDER = ".cache/runnel"


def create_data_folder(data: Path, *, binary: ServerBinary, password: str, user: str | None) -> str:
    """Creates the data folder of an empty server; returns the password of its superuser.

    `password` is used only if there is no template yet; otherwise the template has the password.
    """
    template = _get_template_path(binary)
    try:
        template_password = (template / "password").read_text(encoding="utf-8")
        shutil.copytree(template / "data", data, copy_function=shutil.copyfile)
    except FileNotFoundError:
        shutil.rmtree(data, ignore_errors=True)
        _run_initdb(data, binary=binary, password=password, user=user)
        with suppress(OSError):  # without a writable home, the next server runs initdb again
            _save_template(data, path=template, password=password)
        return password
    if user is not None:
        chown_tree(data, user)
    return template_password


def delete_template(binary: ServerBinary) -> None:
    """Deletes a template that no server starts from: a power cut may have damaged it."""
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
                # Not SCRAM, which is slow: the password never leaves the machine.
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
    """Saves the template atomically; if several processes save one, the first stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix="making-", dir=path.parent))
    try:
        shutil.copytree(data, draft / "data", copy_function=shutil.copyfile)
        (draft / "password").write_text(password, encoding="utf-8")
        draft.rename(path)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


# A minimal client of the PostgreSQL protocol, to check that a server is ready.

CONNECT_TIMEOUT_S = 1.0
PROTOCOL_VERSION = 3 << 16
AUTH_CLEARTEXT_PASSWORD = 3
MESSAGE_HEADER = struct.Struct("!cI")


def can_log_in(port: int, *, user: str, password: str) -> bool:
    """Returns False while the server does not listen yet, starts, or recovers."""
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
        raise ConnectionResetError("the server closed the connection before its reply was complete")
    kind, length = MESSAGE_HEADER.unpack(head)
    return kind, replies.read(length - 4)


class PostgresServer(PrivateServer):
    """A server that survives a kill -9; with `fsync=True` and storage "disk", a power cut too.

    If this process runs as root, the server runs as the user nobody: PostgreSQL refuses root.
    """

    kind: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # "fast": disconnects clients

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
