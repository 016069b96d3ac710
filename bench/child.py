"""A process that is waited for, and that leaves none of its own behind."""

import os
import signal
import subprocess
from pathlib import Path

# To tidy up after Ctrl-C.
TERMINATE_TIMEOUT_S = 20.0


def run_child(command: list[str], *, folder: Path, timeout_s: float) -> tuple[int, str, str]:
    """Exit code, stdout and stderr.

    Raises subprocess.TimeoutExpired. Then, as when this process is interrupted, it and all that it
    has started are ended: by the signal of Ctrl-C first.
    """
    child = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
    except BaseException:
        _terminate(child)
        raise
    return child.returncode, out, err


def _terminate(child: subprocess.Popen[str]) -> None:
    os.killpg(child.pid, signal.SIGINT)
    try:
        child.communicate(timeout=TERMINATE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
