"""The choice of a server program, and the errors if no program fits."""

from dataclasses import replace
from pathlib import Path

import pytest

from runnel.app.private_servers import postgres as postgres_server
from runnel.app.private_servers import redis as redis_server
from runnel.app.private_servers.binaries import POSTGRES, REDIS, ServerProduct, find_binary
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.errors import NoServerBinaryError, ServerFailedError
from tests.conftest import MissingPart
from tests.servers import start_or_skip

ABSENT = ServerProduct(
    title="Absent 6.2 or newer",
    version_min=(6, 2),
    programs=("absent-server",),
    package="no-such-package",
)


def write_program(folder: Path, *, says: str) -> Path:
    path = folder / "absent-server"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def test_without_a_program_the_error_says_how_to_get_one() -> None:
    with pytest.raises(NoServerBinaryError) as caught:
        find_binary(ABSENT)

    assert str(caught.value) == (
        "expected Absent 6.2 or newer on this machine, found none: "
        "install it, or `pip install 'runnel[servers]'`"
    )


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("echo Absent server v=5.0.3", "is version 5.0"),
        ("echo hello", "does not print a version: 'hello'"),
        ("exit 3", "does not run: Command .* returned non-zero exit status 3"),
    ],
)
def test_the_error_names_an_unsuitable_program_and_the_reason(
    says: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_program(tmp_path, says=says)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(NoServerBinaryError, match=f"found {path} {why}"):
        find_binary(ABSENT)


def test_a_program_on_the_path_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_program(tmp_path, says="echo Absent server v=6.2.14 sha=00000000:1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    binary = find_binary(replace(ABSENT, title="Absent, on the path"))

    assert (binary.path, binary.version) == (path, "6.2")


def test_the_error_of_a_failed_start_shows_the_end_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = '[ "$1" = --version ] && echo v=7.2 && exit; echo "# Fatal: no such option"; exit 4'
    write_program(tmp_path, says=says)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(redis_server, "REDIS", replace(ABSENT, title="Absent, that fails"))
    server = RedisServer()

    with pytest.raises(ServerFailedError) as caught:
        server.start()

    assert str(caught.value) == (
        "the private redis server ended with exit code 4 while it started; "
        "the end of its log says why:\n# Fatal: no such option"
    )


@pytest.mark.parametrize("kind", [RedisServer, PostgresServer])
def test_the_programs_of_python_packages_can_be_used_as_servers(
    kind: type[RedisServer | PostgresServer],
    monkeypatch: pytest.MonkeyPatch,
    missing_part: MissingPart,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(redis_server, "REDIS", replace(REDIS, title="Valkey of a package"))
    packaged = replace(POSTGRES, title="PostgreSQL of a package", folders=())
    monkeypatch.setattr(postgres_server, "POSTGRES", packaged)
    server = kind()

    with start_or_skip(server, missing_part):
        assert server.is_running
