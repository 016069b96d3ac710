"""Creates a separate virtual environment for each peer on demand, and keeps it."""

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
    """Returns the interpreter of an environment with the packages of `<environment>.txt`.

    Raises PeerMissingError if the installation fails, and removes the environment.
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
    """Returns a folder in the cache; its name depends on the pins and the Python version."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "runnel-bench")
    content = f"{sys.version} {get_requirements_path(environment).read_text(encoding='utf-8')}"
    return cache / f"{environment}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def get_requirements_path(environment: str) -> Path:
    return FOLDER / f"{environment}.txt"


def read_pinned_versions(environment: str) -> dict[str, str]:
    """Returns the pinned version of each package."""
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
