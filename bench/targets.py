"""The performance targets, and whether a run reached them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bench.peer_jobs import PEER_PREFIX
from bench.results import BenchmarkResults

ReadFigure = Callable[[BenchmarkResults], float | None]

EMBEDDED = ("sqlite x4", "sqlite x64", "sqlite-power x4", "sqlite-power x64")
SERVERS = ("servers 1w x4", "servers 1w x64", "servers 2w x4", "servers 2w x64")
RATE_FIGURE = "executions_per_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerformanceTarget:
    description: str
    configuration: str
    sign: Literal["≥", "≤"]
    bound: float
    read_figure: ReadFigure

    def judge(self, results: BenchmarkResults) -> dict[str, Any]:
        value = self.read_figure(results)
        return {
            "target": self.description,
            "configuration": self.configuration,
            "wanted": f"{self.sign} {self.bound:g}",
            "found": value,
            "verdict": self._decide_verdict(value),
        }

    def _decide_verdict(self, value: float | None) -> str:
        if value is None:
            return "not measured"
        is_reached = value >= self.bound if self.sign == "≥" else value <= self.bound
        return "reached" if is_reached else "missed"


def judge_targets(results: BenchmarkResults) -> list[dict[str, Any]]:
    return [target.judge(results) for target in list_targets()]


def list_targets() -> Iterator[PerformanceTarget]:
    yield from _list_rate_targets()
    yield from _list_edge_targets()
    yield from _list_fan_and_map_targets()
    yield from _list_growth_targets()
    yield _make_upper_bound("W4 cold start, s", "cli", 0.6, "start cli", "cold_start_s")
    yield _make_upper_bound(
        "W5 10,000 waiting, MB above idle",
        "sqlite x4",
        100,
        "waiting sqlite x4",
        "waiting_mb_engine",
    )
    for part in ("orchestrator", "worker"):
        yield _make_upper_bound(
            f"W5 10,000 waiting, MB above idle, {part}",
            "servers 1w x64",
            150,
            "waiting servers 1w x64",
            f"waiting_mb_{part}",
        )


def _list_growth_targets() -> Iterator[PerformanceTarget]:
    labels = {
        "trim": ("sqlite", "deleting an execution beside 30,000, ratio to beside 1,000"),
        "submit": ("sqlite", "submit beside 1,000 that no engine has run, ratio to beside 50"),
        "list": ("sqlite", "list without a match in 100,000, ratio to in 1,000"),
        "label": ("postgres", "search for a rare label in 200,000, ratio to in 20,000"),
    }
    for name, (configuration, label) in labels.items():
        yield _make_upper_bound(
            f"growth: {label}", configuration, 1.3, f"growth {name}", "growth_ratio"
        )


def _list_rate_targets() -> Iterator[PerformanceTarget]:
    for configuration in EMBEDDED:
        # DBOS with default settings is as safe as our `power`; with WAL, as our default.
        is_as_safe = "power" in configuration
        variant = "default" if is_as_safe else "default (survives a power cut, this does not)"
        yield _make_peer_ratio(
            f"W1 ratio to DBOS on SQLite, {variant}", configuration, 100, "dbos-sqlite"
        )
        if not is_as_safe:
            variant = "with WAL (as safe as this)"
            yield _make_peer_ratio(
                f"W1 ratio to DBOS on SQLite {variant}", configuration, 100, "dbos-sqlite-wal"
            )
        yield _make_floor_ratio(configuration, 0.35)
    for configuration in SERVERS:
        yield _make_peer_ratio("W1 ratio to Celery", configuration, 25, "celery")
        yield _make_floor_ratio(configuration, 0.45)


def _list_edge_targets() -> Iterator[PerformanceTarget]:
    for figure, label in (
        ("edge", "W2 per edge, from outside"),
        ("hop", "W2 per edge, by commits"),
    ):
        bounds = {"sqlite x4": (0.5, 3), "servers 1w x4": (1.2, 5), "servers 1w x64": (1.2, 5)}
        for configuration, (p50, p99) in bounds.items():
            job = f"chain {configuration}"
            yield _make_upper_bound(
                f"{label}, p50, ms", configuration, p50, job, f"{figure}_ms_p50"
            )
            yield _make_upper_bound(
                f"{label}, p99, ms", configuration, p99, job, f"{figure}_ms_p99"
            )


def _list_fan_and_map_targets() -> Iterator[PerformanceTarget]:
    for configuration, bound in (
        ("sqlite x4", 0.15),
        ("servers 1w x4", 0.4),
        ("servers 1w x64", 0.4),
    ):
        job = f"fan {configuration}"
        yield _make_upper_bound("W3 1→1,000→1, s", configuration, bound, job, "fan_1000_s")
    for configuration in ("sqlite x4", "servers 1w x64"):
        label = "W3 cost of an item of 100,000, ratio to one of 1,000"
        yield _make_upper_bound(label, configuration, 1.3, f"map {configuration}", "map_cost_ratio")


def _make_upper_bound(
    description: str, configuration: str, bound: float, job: str, figure: str
) -> PerformanceTarget:
    def read_figure(results: BenchmarkResults) -> float | None:
        return results.compute_median(job, figure)

    return PerformanceTarget(
        description=description,
        configuration=configuration,
        sign="≤",
        bound=bound,
        read_figure=read_figure,
    )


def _make_floor_ratio(configuration: str, bound: float) -> PerformanceTarget:
    def read_figure(results: BenchmarkResults) -> float | None:
        return results.compute_floor_ratio(f"diamond {configuration}")

    return PerformanceTarget(
        description="W1 ratio to the floor",
        configuration=configuration,
        sign="≥",
        bound=bound,
        read_figure=read_figure,
    )


def _make_peer_ratio(
    description: str, configuration: str, bound: float, peer: str
) -> PerformanceTarget:
    def read_figure(results: BenchmarkResults) -> float | None:
        runnel_rate = results.compute_median(f"diamond {configuration}", RATE_FIGURE)
        peer_rate = results.compute_median(f"diamond {PEER_PREFIX} {peer}", RATE_FIGURE)
        return None if runnel_rate is None or peer_rate is None else runnel_rate / peer_rate

    return PerformanceTarget(
        description=description,
        configuration=configuration,
        sign="≥",
        bound=bound,
        read_figure=read_figure,
    )
