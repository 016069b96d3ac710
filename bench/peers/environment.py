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
INSTALL_LIMIT_S = 600


def python_of(environment: str) -> Path:
    """The interpreter of an environment that has what `<environment>.txt` pins.

    Raises PeerMissingError if it can't be made, and leaves nothing behind then.
    """
    folder = place_of(environment)
    python = folder / "bin" / "python"
    stamp = folder / "complete"
    if not stamp.exists():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            _make(environment, folder, python)
        except PeerMissingError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        stamp.touch()
    return python


def place_of(environment: str) -> Path:
    """Below $RUNNEL_BENCH_CACHE or ~/.cache/runnel-bench; another one for other pins or Pythons."""
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "runnel-bench")
    made_of = f"{sys.version} {requirements(environment).read_text(encoding='utf-8')}"
    return cache / f"{environment}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"


def requirements(environment: str) -> Path:
    return FOLDER / f"{environment}.txt"


def pinned(environment: str) -> dict[str, str]:
    """Versions by the names of the packages."""
    lines = requirements(environment).read_text(encoding="utf-8").split()
    return dict(line.split("==", maxsplit=1) for line in lines)


def _make(environment: str, folder: Path, python: Path) -> None:
    print(f"installing {environment} into {folder}", file=sys.stderr)
    venv.create(folder)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    command = [*pip, "--quiet", "install", "-r", str(requirements(environment))]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
    except subprocess.CalledProcessError as error:
        raise PeerMissingError(environment, why=error.stderr) from error
    except subprocess.TimeoutExpired as error:
        raise PeerMissingError(environment, why=str(error)) from error
