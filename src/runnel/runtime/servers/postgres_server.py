"""A private PostgreSQL."""

import signal
from typing import ClassVar

from runnel.errors import ServerFailedError
from runnel.runtime.servers import postgres_wire
from runnel.runtime.servers.binaries import POSTGRES, Binary, find_binary
from runnel.runtime.servers.ports import LOOPBACK
from runnel.runtime.servers.postgres_template import SUPERUSER, forget, make_data
from runnel.runtime.servers.private_server import PrivateServer
from runnel.runtime.servers.scratch import Storage
from runnel.runtime.servers.users import user_instead_of_root


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
        return postgres_wire.answers(self._port, user=SUPERUSER, password=self._password)
