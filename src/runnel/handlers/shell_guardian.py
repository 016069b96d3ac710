"""Ends the programs of a worker that died: a small process that outlives it, and only for that.

Run by its path: `python -I -S shell_guardian.py`. It reads lines from the worker, `+ID` for a group
of processes that was started and `-ID` for one that has ended. When the worker dies, however it
dies, the kernel closes the pipe: then the groups that are left are killed.

Imports nothing of Runnel, and little else: it takes 15 ms of the first program of a worker.
"""

import os
import signal
import sys
from contextlib import suppress


def main() -> None:
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        change, group = line[:1], int(line[1:])
        if change == b"+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
