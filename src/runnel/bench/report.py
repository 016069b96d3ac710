"""Checks the options of a benchmark, repeats the measurement, and reports it as text or JSON."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from runnel.bench.deployment import (
    BenchmarkDeployment,
    EngineOnlyWork,
    FunctionWork,
    run_all,
)
from runnel.bench.figures import Figures, compute_medians, compute_spreads
from runnel.bench.functions import FUNCTION_KINDS, FunctionKind
from runnel.bench.machine import describe_machine
from runnel.bench.workflows import build_diamond
from runnel.bench.workloads import STANDARD_WORKLOADS, measure_workload
from runnel.errors import InputError
from runnel.settings.model import Durability
from runnel.settings.variables import hide_password

# The request, which holds the checked options of the command line.

BenchmarkBackend: TypeAlias = Literal["memory", "sqlite", "redis"]

# The default count, its unit and a description of each workload that has its own code.
SPECIAL_WORKLOADS = {
    "start": (5, "starts", "'runnel run' of three nodes in a new data directory, from a shell"),
    "takeover": (5, "kills", "time from the kill of an orchestrator until another owns its work"),
    "archive": (2_000, "executions", "diamonds while PostgreSQL is stopped; archived afterwards"),
}
FUNCTION_WORKLOADS = tuple(
    name for name, workload in STANDARD_WORKLOADS.items() if workload.functions is not None
)
WORKLOAD_NAMES = (*STANDARD_WORKLOADS, *SPECIAL_WORKLOADS)
SERVER_WORKLOADS = frozenset({"takeover", "archive"})
# The maximum values of options. All executions are in memory at once, and each worker is a process.
# Larger numbers would exhaust the machine before an error is reported.
COUNT_MAX = 100_000
CONCURRENCY_MAX = 10_000
WORKERS_MAX = 64
# The options that each workload does not accept.
_FIXED_OPTIONS = {"start": ("concurrency", "repetitions"), "takeover": ("concurrency", "workers")}


class BenchmarkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for a benchmark. If `redis_url` is None, private servers are started."""

    workload: str
    backend: BenchmarkBackend
    durability: Durability
    concurrency: int
    workers: int
    count: int
    count_unit: str
    repetitions: int
    functions: FunctionKind = "sync"
    redis_url: str | None = None
    postgres_url: str | None = None

    @property
    def has_functions(self) -> bool:
        """Returns whether the workload measures decorated functions too."""
        return self.workload in FUNCTION_WORKLOADS

    @property
    def description(self) -> str:
        if self.workload in STANDARD_WORKLOADS:
            return STANDARD_WORKLOADS[self.workload].description
        return SPECIAL_WORKLOADS[self.workload][2]


class BenchmarkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `runnel bench`. None means that the option is not given."""

    backend: str | None = None
    durability: str | None = None
    concurrency: int | None = None
    workers: int | None = None
    count: int | None = None
    repetitions: int | None = None
    functions: str | None = None
    redis_url: str | None = None
    postgres_url: str | None = None


def build_request(workload: str, options: BenchmarkOptions) -> BenchmarkRequest:
    """Returns the checked request; raises InputError if an option is not valid for the workload."""
    if workload not in WORKLOAD_NAMES:
        raise InputError(f"expected a workload ({', '.join(WORKLOAD_NAMES)}), got '{workload}'")
    _check_sizes(workload, options)
    backend = _choose_backend(workload, options)
    durability = _choose_durability(backend, options.durability)
    if options.workers is not None and backend != "redis":
        raise InputError(f"--workers: {backend} has one worker, in this process; use --concurrency")
    _check_urls(workload, backend, options)
    kind = STANDARD_WORKLOADS.get(workload)
    if kind is None:
        count, count_unit, _ = SPECIAL_WORKLOADS[workload]
        repetitions = 1
    else:
        count, count_unit, repetitions = kind.count, kind.count_unit, kind.repetitions
    return BenchmarkRequest(
        workload=workload,
        backend=backend,
        durability=durability,
        concurrency=options.concurrency or 4,
        workers=options.workers or 1,
        count=options.count or count,
        count_unit=count_unit,
        repetitions=options.repetitions or repetitions,
        functions=_choose_functions(workload, options.functions),
        redis_url=options.redis_url,
        postgres_url=options.postgres_url,
    )


def _check_sizes(workload: str, options: BenchmarkOptions) -> None:
    maxima = {"count": COUNT_MAX, "concurrency": CONCURRENCY_MAX, "workers": WORKERS_MAX}
    for name, maximum in maxima.items():
        value = getattr(options, name)
        if value is not None and value > maximum:
            raise InputError(f"--{name}: expected at most {maximum}, got {value}")
    for name in _FIXED_OPTIONS.get(workload, ()):
        if getattr(options, name) is not None:
            raise InputError(f"--{name}: '{workload}' does not accept this option; use --count")


def _choose_backend(workload: str, options: BenchmarkOptions) -> BenchmarkBackend:
    backend = options.backend
    if backend is None and workload == "start":
        return "sqlite"
    if backend is None:
        on_servers = options.redis_url is not None or workload in SERVER_WORKLOADS
        return "redis" if on_servers else "sqlite"
    if backend not in get_args(BenchmarkBackend):
        names = ", ".join(get_args(BenchmarkBackend))
        raise InputError(f"--backend: expected one of {names}, got '{backend}'")
    if workload in SERVER_WORKLOADS and backend != "redis":
        raise InputError(f"'{workload}' needs servers: expected --backend redis, got '{backend}'")
    if workload == "start" and backend != "sqlite":
        raise InputError(f"'start' runs on SQLite only: expected --backend sqlite, got '{backend}'")
    chosen: BenchmarkBackend = msgspec.convert(backend, BenchmarkBackend)
    return chosen


def _choose_durability(backend: BenchmarkBackend, name: str | None) -> Durability:
    if name is None:
        return "process"
    if backend != "sqlite":
        raise InputError(f"--durability: only SQLite has this option, not {backend}")
    if name not in get_args(Durability):
        raise InputError(f"--durability: expected process or power, got '{name}'")
    durability: Durability = msgspec.convert(name, Durability)
    return durability


def _choose_functions(workload: str, name: str | None) -> FunctionKind:
    if name is None:
        return "sync"
    if workload not in FUNCTION_WORKLOADS:
        names = ", ".join(FUNCTION_WORKLOADS)
        raise InputError(f"--functions: only {names} run functions, not '{workload}'")
    if name not in FUNCTION_KINDS:
        raise InputError(f"--functions: expected sync or async, got '{name}'")
    functions: FunctionKind = msgspec.convert(name, FunctionKind)
    return functions


def _check_urls(workload: str, backend: BenchmarkBackend, options: BenchmarkOptions) -> None:
    urls = {"--redis-url": options.redis_url, "--postgres-url": options.postgres_url}
    named = [option for option, url in urls.items() if url is not None]
    if workload == "start" and named:
        raise InputError("'start' runs on SQLite, without a server: give no URL")
    if named and backend != "redis":
        raise InputError(f"{named[0]}: expected --backend redis with it, got '{backend}'")
    if options.redis_url is None and options.postgres_url is not None:
        raise InputError("--postgres-url: expected --redis-url with it, got nothing")
    if workload == "archive" and named:
        raise InputError("'archive' stops PostgreSQL, so it uses private servers: give no URL")


# Runs a workload repeatedly on a deployment.

WARMUP_EXECUTIONS = 100
RATE_FIGURE, ENGINE_ONLY_FIGURE = "executions_per_s", "engine_only_per_s"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a measurement: the median, minimum and maximum of each figure."""

    figures: Figures
    spread: dict[str, tuple[float, float]]


async def _settle_at_once() -> None:
    """Does nothing, for a deployment without background work after the last execution."""


async def measure(
    workload: str,
    deployment: BenchmarkDeployment,
    *,
    count: int,
    repetitions: int,
    functions: FunctionKind,
    settle: Callable[[], Awaitable[None]] = _settle_at_once,
) -> Measured:
    """Repeats the workload and returns the medians and spreads of its figures.

    `settle` waits for background work after a run, so that the next run is not slowed down.
    """
    await warm_up(deployment)
    runs = [
        await measure_workload(workload, deployment, count, functions=functions, settle=settle)
        for _ in range(repetitions)
    ]
    return summarize_runs(runs)


async def warm_up(deployment: BenchmarkDeployment) -> None:
    """Runs WARMUP_EXECUTIONS diamonds of sync functions, of async functions, and engine only."""
    for kind in FUNCTION_KINDS:
        await run_all(deployment, FunctionWork(kind, "diamond"), WARMUP_EXECUTIONS)
    await run_all(deployment, EngineOnlyWork(build_diamond()), WARMUP_EXECUTIONS)


def summarize_runs(runs: list[Figures]) -> Measured:
    return Measured(figures=compute_medians(runs), spread=compute_spreads(runs))


PRIVATE_REDIS = "private, on disk, appendfsync everysec"
PRIVATE_POSTGRES = "private, on disk, fsync on"
_UNIT_PATTERNS = (
    (r"_per_s$", " per second"),
    (r"_ms_p(\d+)$", r", ms, p\1"),
    (r"_us_per_item$", ", µs per item"),
    (r"_us_(\w+)$", r", µs each, \1"),
    (r"_mb_(\w+)$", r", MB, \1"),
    (r"_s_(p50|max|best)$", r", seconds, \1"),
    (r"_s$", ", seconds"),
)


def build_document(request: BenchmarkRequest, measured: Measured) -> dict[str, Any]:
    """Returns the output of `runnel bench --json`.

    `executions_per_s` is the rate of decorated functions, and `engine_only_per_s` that of nodes
    that do nothing. A rate that the workload does not measure is null.
    """
    return {
        "workload": request.workload,
        "backend": request.backend,
        "executions_per_s": measured.figures.get(RATE_FIGURE),
        "nodes_per_s": measured.figures.get("nodes_per_s"),
        "engine_only_per_s": measured.figures.get(ENGINE_ONLY_FIGURE),
        "figures": measured.figures,
        "spread": measured.spread,
        "settings": describe_settings(request),
        "machine": describe_machine(),
    }


def describe_settings(request: BenchmarkRequest) -> dict[str, Any]:
    """Returns the settings of a measurement, with passwords hidden."""
    settings: dict[str, Any] = {
        "backend": request.backend,
        "count": request.count,
        "counted": request.count_unit,
        "concurrency": request.concurrency,
        "repetitions": request.repetitions,
    }
    if request.has_functions:
        settings["functions"] = request.functions
    if request.backend == "sqlite":
        settings["durability"] = request.durability
    if request.backend == "redis":
        is_private = request.redis_url is None
        settings |= {
            "orchestrators": 2 if request.workload == "takeover" else 1,
            "workers": request.workers,
            "redis": PRIVATE_REDIS if is_private else hide_password(request.redis_url or ""),
            "postgres": _describe_postgres(request),
        }
    return settings


def format_title(request: BenchmarkRequest) -> str:
    """Returns one line with the workload and its settings."""
    shown_first = {"backend", "count", "counted"}
    named = [
        f"{name} {value}"
        for name, value in describe_settings(request).items()
        if name not in shown_first
    ]
    amount = f"{request.count:,} {request.count_unit}"
    return f"{request.workload} on {request.backend}: {', '.join([amount, *named])}"


def format_rows(measured: Measured) -> list[Sequence[str]]:
    """Returns name, median, minimum and maximum of each figure."""
    return [
        _format_row(format_label(name), value, measured.spread[name])
        for name, value in order_figures(measured)
    ]


def order_figures(measured: Measured) -> list[tuple[str, float]]:
    first = (RATE_FIGURE, "nodes_per_s", ENGINE_ONLY_FIGURE)
    figures: Mapping[str, float] = measured.figures
    rates = [(name, figures[name]) for name in first if name in figures]
    return [*rates, *((name, value) for name, value in figures.items() if name not in first)]


def format_label(name: str) -> str:
    """Returns the name of a figure for people: `edge, ms, p50` for `edge_ms_p50`."""
    for pattern, unit in _UNIT_PATTERNS:
        label, count = re.subn(pattern, unit, name)
        if count:
            return label.replace("_", " ")
    return name.replace("_", " ")


def format_number(value: float) -> str:
    """Returns the number with three significant digits; all digits before the point are kept."""
    size = abs(value)
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if size >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def _format_row(name: str, value: float, spread: tuple[float, float]) -> Sequence[str]:
    low, high = spread
    range_texts = ("", "") if low == high else (format_number(low), format_number(high))
    return (name, format_number(value), *range_texts)


def _describe_postgres(request: BenchmarkRequest) -> str:
    if request.redis_url is None:
        return PRIVATE_POSTGRES
    return "none" if request.postgres_url is None else hide_password(request.postgres_url)
