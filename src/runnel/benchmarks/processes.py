"""What a process uses, as the kernel counts it; nothing where there is no /proc."""

import os
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")


def resident_mb(pid: int | str = "self") -> float | None:
    """The memory that it has now."""
    return _status_mb(pid, "VmRSS:")


def peak_mb(pid: int | str = "self") -> float | None:
    """The most that it ever had."""
    return _status_mb(pid, "VmHWM:")


def processor_s(pids: Iterable[int]) -> float:
    """All that they have used up, of their own and of the system."""
    return sum(map(_processor_s, pids))


def _processor_s(pid: int) -> float:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status_mb(pid: int | str, name: str) -> float | None:
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith(name)), None)
