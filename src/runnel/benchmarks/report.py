"""A measurement for people and for programs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from runnel.benchmarks.asked import Asked
from runnel.benchmarks.machine import described_machine
from runnel.benchmarks.measuring import PER_S, Measured
from runnel.settings.parsers import without_password

PRIVATE_REDIS = "private, on disk, appendfsync everysec"
PRIVATE_POSTGRES = "private, on disk, fsync on"
MEANING = (
    "The floor is a bare loop on this machine that stores the same and does nothing else. "
    "On a busy machine figures move together: compare ratios."
)
_UNITS = (
    (r"_per_s$", " per second"),
    (r"_ms_p(\d+)$", r", ms, p\1"),
    (r"_us_per_item$", ", µs per item"),
    (r"_us_(\w+)$", r", µs each, \1"),
    (r"_mb_(\w+)$", r", MB, \1"),
    (r"_s_(p50|max|best)$", r", seconds, \1"),
    (r"_s$", ", seconds"),
)


def document(asked: Asked, measured: Measured) -> dict[str, Any]:
    """What `runnel bench --json` prints; a figure that this workload has not is null."""
    return {
        "workload": asked.workload,
        "backend": asked.backend,
        "executions_per_s": measured.figures.get(PER_S),
        "nodes_per_s": measured.figures.get("nodes_per_s"),
        "floor_per_s": measured.floor_per_s,
        "floor_ratio": measured.floor_ratio,
        "figures": measured.figures,
        "spread": measured.spread,
        "floor_spread": measured.floor_spread,
        "settings": settings_of(asked),
        "machine": described_machine(),
    }


def settings_of(asked: Asked) -> dict[str, Any]:
    """Without passwords."""
    found: dict[str, Any] = {
        "backend": asked.backend,
        "count": asked.count,
        "counted": asked.counted,
        "concurrency": asked.concurrency,
        "repetitions": asked.repetitions,
    }
    if asked.backend == "sqlite":
        found["durability"] = asked.durability
    if asked.backend == "redis":
        is_private = asked.redis_url is None
        found |= {
            "orchestrators": 2 if asked.workload == "takeover" else 1,
            "workers": asked.workers,
            "redis": PRIVATE_REDIS if is_private else without_password(asked.redis_url or ""),
            "postgres": _postgres(asked),
        }
    return found


def title(asked: Asked) -> str:
    """One line: what was run, and how."""
    told = {"backend", "count", "counted"}
    named = [f"{name} {value}" for name, value in settings_of(asked).items() if name not in told]
    amount = f"{asked.count:,} {asked.counted}"
    return f"{asked.workload} on {asked.backend}: {', '.join([amount, *named])}"


def rows(measured: Measured) -> list[Sequence[str]]:
    """Name, median, least and most of each figure, the floor at the end."""
    found = [_row(label(name), each, measured.spread[name]) for name, each in ordered(measured)]
    if measured.floor_per_s is not None and measured.floor_spread is not None:
        found.append(_row("floor per second", measured.floor_per_s, measured.floor_spread))
    if measured.floor_ratio is not None:
        found.append(("of the floor", f"{measured.floor_ratio:.2f}", "", ""))
    return found


def ordered(measured: Measured) -> list[tuple[str, float]]:
    first = (PER_S, "nodes_per_s")
    figures: Mapping[str, float] = measured.figures
    known = [(name, figures[name]) for name in first if name in figures]
    return [*known, *((name, each) for name, each in figures.items() if name not in first)]


def label(name: str) -> str:
    """`edge_ms_p50` is `edge, ms, p50`."""
    for pattern, words in _UNITS:
        shown, count = re.subn(pattern, words, name)
        if count:
            return shown.replace("_", " ")
    return name.replace("_", " ")


def number(value: float) -> str:
    """Three digits, or all of those before the point."""
    size = abs(value)
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if size >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def _row(name: str, value: float, spread: tuple[float, float]) -> Sequence[str]:
    least, most = spread
    shown = ("", "") if least == most else (number(least), number(most))
    return (name, number(value), *shown)


def _postgres(asked: Asked) -> str:
    if asked.redis_url is None:
        return PRIVATE_POSTGRES
    return "none" if asked.postgres_url is None else without_password(asked.postgres_url)
