"""An initialised PostgreSQL data folder, made once for each version and kept for the next time.

initdb takes one to two seconds, a copy of what it made takes a tenth of that.
"""

import platform
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from runnel.errors import ServerFailedError
from runnel.runtime.servers.binaries import Binary
from runnel.runtime.servers.users import give, run_as

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
