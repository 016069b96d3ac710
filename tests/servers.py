"""Real servers for tests: one that the session shares, or one for a single test.

A test that kills, pauses or wipes a server uses its own. A test on the shared server uses its own
keys or tables. There is one shared server per process of the test run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pytest

from runnel.app.private_servers.binaries import (
    POSTGRES,
    REDIS,
    find_binary,
    get_unprivileged_user,
)
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.errors import NoServerBinaryError
from tests.conftest import MissingPart

AnyServer: TypeAlias = RedisServer | PostgresServer


@pytest.fixture(scope="session")
def shared_redis(missing_part: MissingPart) -> Iterator[RedisServer]:
    server = RedisServer()
    with start_or_skip(server, missing_part):
        yield server


@pytest.fixture(scope="session")
def shared_postgres(missing_part: MissingPart) -> Iterator[PostgresServer]:
    server = PostgresServer()
    with start_or_skip(server, missing_part):
        yield server


@pytest.fixture
def own_redis(missing_part: MissingPart) -> Iterator[RedisServer]:
    server = RedisServer()
    with start_or_skip(server, missing_part):
        yield server


@pytest.fixture
def own_postgres(missing_part: MissingPart) -> Iterator[PostgresServer]:
    server = PostgresServer()
    with start_or_skip(server, missing_part):
        yield server


def require_binary(kind: type[AnyServer], missing_part: MissingPart) -> None:
    """Requires a server binary, for tests that start the server in another process."""
    try:
        if kind is RedisServer:
            find_binary(REDIS)
        else:
            find_binary(POSTGRES, user=get_unprivileged_user())
    except NoServerBinaryError as error:
        missing_part(kind.kind, str(error))


@contextmanager
def start_or_skip(server: AnyServer, missing_part: MissingPart) -> Iterator[None]:
    try:
        server.start()
    except NoServerBinaryError as error:
        missing_part(server.kind, str(error))
    with server:
        yield
