"""The worker's side of the guardian: who would be left behind if this process were killed now."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from runnel.handlers.shell import guardian


class Guardian:
    """Started with the first program, ended with the worker."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def lifeline(self) -> int:
        """A descriptor to which a program writes `+` and its id before it does anything else.

        Valid until the next call: a guardian that was killed is replaced.
        """
        process = self._process
        if process is None or process.poll() is not None:
            self.close()
            process = self._process = _started()
        return 0 if process.stdin is None else process.stdin.fileno()

    def forget(self, group: int) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.write(f"-{group}\n".encode())

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            process.wait()


def _started() -> "subprocess.Popen[bytes]":
    path = str(Path(guardian.__file__))
    return subprocess.Popen(  # noqa: S603  # our own file, by our own interpreter
        [sys.executable, "-I", "-S", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
