"""Where and with what was measured."""

import os
import platform
import sqlite3
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import runnel

PACKAGES = {"msgspec": "msgspec", "redis-py": "redis", "hiredis": "hiredis", "asyncpg": "asyncpg"}


def described_machine() -> dict[str, str | int | float]:
    """`load` is that of the last minute: figures of a busy machine are to be read with care."""
    return {
        "runnel": runnel.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: found for name, package in PACKAGES.items() if (found := _version(package))},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _cores(),
        "load": round(os.getloadavg()[0], 2),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cores() -> int:
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
