"""The guardian: a small process that kills the programs of a worker that has died.

The worker starts the guardian by path: `python -I -S shell_guardian.py`. The guardian reads lines
from the worker: `+ID` when a process group was started, `-ID` when the group has ended. When the
worker dies, for any reason, the kernel closes the pipe. Then the guardian kills the remaining
process groups.

The guardian imports nothing of Runnel, because its start delays the first program of a worker. The
start takes 15 ms.
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
