"""A virtual environment for each peer, made on demand and kept: never the project's own."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.peers.errors import PeerMissingError

FOLDER = Path(__file__).parent
CACHE_VARIABLE = "RUNNEL_BENCH_CACHE"
INSTALL_TIMEOUT_S = 600


def prepare_python(environment: str) -> Path:
    """The interpreter of an environment that has what `<environment>.txt` pins.

    Raises PeerMissingError if it can't be made, and leaves nothing behind then.
    """
    folder = find_environment_folder(environment)
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _create_environment(environment, folder, python)
        except PeerMissingError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        stamp.touch()
    return python


def find_environment_folder(environment: str) -> Path:
    """Below $RUNNEL_BENCH_CACHE or ~/.cache/runnel-bench; another one for other pins or Pythons."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "runnel-bench")
    made_of = f"{sys.version} {get_requirements_path(environment).read_text(encoding='utf-8')}"
    return cache / f"{environment}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def get_requirements_path(environment: str) -> Path:
    return FOLDER / f"{environment}.txt"


def read_pinned_versions(environment: str) -> dict[str, str]:
    """Versions by the names of the packages."""
    lines = get_requirements_path(environment).read_text(encoding="utf-8").split()
    return dict(line.split("==", maxsplit=1) for line in lines)


def _create_environment(environment: str, folder: Path, python: Path) -> None:
    print(f"installing {environment} into {folder}", file=sys.stderr)
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    command = [*pip, "--quiet", "install", "-r", str(get_requirements_path(environment))]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S
        )
    except subprocess.CalledProcessError as error:
        raise PeerMissingError(environment, reason=error.stderr) from error
    except subprocess.TimeoutExpired as error:
        raise PeerMissingError(environment, reason=str(error)) from error
