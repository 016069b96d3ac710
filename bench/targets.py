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
ENGINE_ONLY_FIGURE = "engine_only_per_s"


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
    yield from _list_floor_targets()
    yield from _list_edge_targets()
    yield from _list_engine_only_edge_targets()
    yield from _list_fan_and_map_targets()
    yield _make_bound("W4 cold start, s", "cli", "≤", 0.6, _read("start cli", "cold_start_s"))
    yield from _list_waiting_targets()
    yield from _list_call_targets()
    yield from _list_load_targets()
    yield from _list_growth_targets()
    yield from _list_growing_view_targets()


def _list_growing_view_targets() -> Iterator[PerformanceTarget]:
    for command, title in (("show", "`runnel show`"), ("read", "a read over HTTP")):
        for figure in ("cost", "memory"):
            label = f"{figure} of {title} of 100 outputs of 10 MB, ratio to 10 KB"
            name = f"{command}_{figure}_ratio"
            yield _make_bound(label, "show", "≤", 1.3, _read("growth show", name))


def _list_growth_targets() -> Iterator[PerformanceTarget]:
    labels = {
        "trim": ("sqlite", "deleting an execution beside 30,000, ratio to beside 1,000"),
        "submit": ("sqlite", "submit beside 1,000 that no engine has run, ratio to beside 50"),
        "list": ("sqlite", "list without a match in 100,000, ratio to in 1,000"),
        "label": ("postgres", "search for a rare label in 200,000, ratio to in 20,000"),
    }
    for name, (configuration, label) in labels.items():
        figure = _read(f"growth {name}", "growth_ratio")
        yield _make_bound(f"growth: {label}", configuration, "≤", 1.3, figure)


def _list_rate_targets() -> Iterator[PerformanceTarget]:
    for functions, bound in (("async", 0.75), ("sync", 0.5)):
        for configuration in ("sqlite x4", "sqlite x64"):
            yield _make_bound(
                f"W1 {functions} functions, ratio to the engine only",
                configuration,
                "≥",
                bound,
                _read_ratio(
                    f"diamond {functions} {configuration}", RATE_FIGURE, ENGINE_ONLY_FIGURE
                ),
            )
    for configuration in EMBEDDED:
        # DBOS with default settings is as safe as our `power`; with WAL, as our default.
        is_as_safe = "power" in configuration
        variant = "default" if is_as_safe else "default (survives a power cut, this does not)"
        yield _make_bound(
            f"W1 sync functions, ratio to DBOS on SQLite, {variant}",
            configuration,
            "≥",
            40,
            _read_peer_ratio(f"diamond sync {configuration}", RATE_FIGURE, "dbos-sqlite"),
        )
        if not is_as_safe:
            yield _make_bound(
                "W1 sync functions, ratio to DBOS on SQLite with WAL (as safe as this)",
                configuration,
                "≥",
                25,
                _read_peer_ratio(f"diamond sync {configuration}", RATE_FIGURE, "dbos-sqlite-wal"),
            )
    yield _make_bound(
        "W1 sync functions, ratio to Celery",
        "servers 2w x64",
        "≥",
        15,
        _read_peer_ratio("diamond sync servers 2w x64", RATE_FIGURE, "celery"),
    )


def _list_floor_targets() -> Iterator[PerformanceTarget]:
    for configurations, bound in ((EMBEDDED, 0.35), (SERVERS, 0.45)):
        for configuration in configurations:
            yield _make_bound(
                "W1 engine only, ratio to the floor",
                configuration,
                "≥",
                bound,
                _read_ratio(f"diamond sync {configuration}", ENGINE_ONLY_FIGURE, "floor_per_s"),
            )


def _list_edge_targets() -> Iterator[PerformanceTarget]:
    for functions, bound in (("async", 0.4), ("sync", 0.6)):
        yield _make_bound(
            f"W2 {functions} functions, per edge, p50, ms",
            "sqlite x4",
            "≤",
            bound,
            _read(f"chain {functions} sqlite x4", "edge_ms_p50"),
        )
    for configuration in ("servers 1w x4", "servers 1w x64"):
        yield _make_bound(
            "W2 sync functions, per edge, p50, ratio to Celery",
            configuration,
            "≤",
            0.8,
            _read_peer_ratio(f"chain sync {configuration}", "edge_ms_p50", "celery"),
        )


def _list_engine_only_edge_targets() -> Iterator[PerformanceTarget]:
    for figure, label in (("edge", "from outside"), ("hop", "by commits")):
        bounds = {"sqlite x4": (0.5, 3), "servers 1w x4": (1.2, 5), "servers 1w x64": (1.2, 5)}
        for configuration, (p50, p99) in bounds.items():
            for percentile, bound in (("p50", p50), ("p99", p99)):
                yield _make_bound(
                    f"W2 engine only, per edge, {label}, {percentile}, ms",
                    configuration,
                    "≤",
                    bound,
                    _read(f"chain sync {configuration}", f"engine_only_{figure}_ms_{percentile}"),
                )


def _list_fan_and_map_targets() -> Iterator[PerformanceTarget]:
    for configuration, bound in (
        ("sqlite x4", 0.15),
        ("servers 1w x4", 0.4),
        ("servers 1w x64", 0.4),
    ):
        read_figure = _read(f"fan sync {configuration}", "engine_only_fan_1000_s")
        yield _make_bound("W3 engine only, 1→1,000→1, s", configuration, "≤", bound, read_figure)
    for configuration in ("sqlite x4", "servers 1w x64"):
        label = "W3 engine only, cost of an item of 100,000, ratio to one of 1,000"
        read_figure = _read(f"map {configuration}", "map_cost_ratio")
        yield _make_bound(label, configuration, "≤", 1.3, read_figure)


def _list_waiting_targets() -> Iterator[PerformanceTarget]:
    yield _make_bound(
        "W5 10,000 waiting, MB above idle",
        "sqlite x4",
        "≤",
        100,
        _read("waiting sqlite x4", "waiting_mb_engine"),
    )
    for part in ("orchestrator", "worker"):
        yield _make_bound(
            f"W5 10,000 waiting, MB above idle, {part}",
            "servers 1w x64",
            "≤",
            150,
            _read("waiting servers 1w x64", f"waiting_mb_{part}"),
        )


def _list_call_targets() -> Iterator[PerformanceTarget]:
    for percentile, bound in (("p50", 1.5), ("p99", 5)):
        yield _make_bound(
            f"W6 call of one node, engine open, {percentile}, ms",
            "one caller",
            "≤",
            bound,
            _read("call engine c1", f"call_ms_{percentile}"),
        )
    yield _make_bound(
        "W6 runnel.run of one node, nothing open, p50, ms",
        "one caller",
        "≤",
        6,
        _read("call run c1", "call_ms_p50"),
    )
    yield _make_bound(
        "W6 Client.run of one node against runnel dev, per second",
        "32 callers",
        "≥",
        300,
        _read("call http c32", "calls_per_s"),
    )


def _list_load_targets() -> Iterator[PerformanceTarget]:
    for label, figure in (
        ("sync functions", "latency_ms_p50"),
        ("engine only", "engine_only_latency_ms_p50"),
    ):
        yield _make_bound(
            f"W7 600 diamonds per second, {label}, p50, ms",
            "servers 2w x64",
            "≤",
            20,
            _read("load-600 servers 2w x64", figure),
        )


def _make_bound(
    description: str,
    configuration: str,
    sign: Literal["≥", "≤"],
    bound: float,
    read_figure: ReadFigure,
) -> PerformanceTarget:
    return PerformanceTarget(
        description=description,
        configuration=configuration,
        sign=sign,
        bound=bound,
        read_figure=read_figure,
    )


def _read(job: str, figure: str) -> ReadFigure:
    return lambda results: results.compute_median(job, figure)


def _read_ratio(job: str, figure: str, other: str) -> ReadFigure:
    return lambda results: results.compute_ratio(job, figure, other)


def _read_peer_ratio(job: str, figure: str, peer: str) -> ReadFigure:
    """Returns the ratio of our figure to that of a peer that ran the same workload."""
    peer_job = f"{job.split(maxsplit=1)[0]} {PEER_PREFIX} {peer}"

    def read_figure(results: BenchmarkResults) -> float | None:
        ours, theirs = (results.compute_median(name, figure) for name in (job, peer_job))
        return None if ours is None or theirs is None else ours / theirs

    return read_figure
