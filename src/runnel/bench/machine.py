"""Processor time and memory of processes, and a description of the machine.

The figures of processes come from /proc. Systems without /proc have no such figures.
"""

import os
import platform
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import runnel
from runnel.bench.figures import Figures

PROC = Path("/proc")
PACKAGES = {"msgspec": "msgspec", "redis-py": "redis", "hiredis": "hiredis", "asyncpg": "asyncpg"}


def read_resident_mb(pid: int | str = "self") -> float | None:
    """Returns the resident memory of a process in MB, or None if it can't be read."""
    return _read_status_mb(pid, "VmRSS:")


def read_peak_mb(pid: int | str = "self") -> float | None:
    """Returns the peak resident memory of a process in MB, or None if it can't be read."""
    return _read_status_mb(pid, "VmHWM:")


def read_cpu_s(pids: Iterable[int]) -> float:
    """Returns the sum of the user and system time of the processes, in seconds."""
    return sum(map(_read_process_cpu_s, pids))


def read_cpu_by_role(pids: Mapping[str, Sequence[int]]) -> Figures:
    """Returns the processor time of the processes of each role, in seconds."""
    return {role: read_cpu_s(role_pids) for role, role_pids in pids.items()}


def read_memory_by_role(pids: Mapping[str, Sequence[int]], *, is_peak: bool = False) -> Figures:
    """Returns the memory of the largest process of each role in MB; nothing without /proc."""
    read = read_peak_mb if is_peak else read_resident_mb
    figures: Figures = {}
    for role, role_pids in pids.items():
        known = [megabytes for megabytes in map(read, role_pids) if megabytes is not None]
        if known:
            figures[role] = max(known)
    return figures


def _read_process_cpu_s(pid: int) -> float:
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _read_status_mb(pid: int | str, name: str) -> float | None:
    try:
        lines = (PROC / str(pid) / "status").read_text(encoding="utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith(name)), None)


def describe_machine() -> dict[str, str | int | float]:
    """Returns the versions, the system, the processor and the load of this machine.

    `load` is the load average of the last minute: figures of a busy machine are less reliable.
    """
    return {
        "runnel": runnel.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: text for name, package in PACKAGES.items() if (text := _find_version(package))},
        "system": platform.platform(),
        "processor": _read_processor_name(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else _count_cores(),
        "load": round(os.getloadavg()[0], 2),
    }


def _find_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _count_cores() -> int:
    return os.cpu_count() or 1


def _read_processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
