"""A measurement for people and for programs."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from runnel.bench.setup import (
    Figures,
    Site,
    described_machine,
    diamond,
    medians,
    run_all,
    spreads,
)
from runnel.bench.workloads import KINDS, Kind
from runnel.errors import InputError
from runnel.settings.model import Durability
from runnel.settings.variables import without_password

# What is to be measured, checked: every combination that makes no sense is one sentence.

Backend: TypeAlias = Literal["memory", "sqlite", "redis"]

# What is not done by executions on a site: how many times, and what for.
OTHERS = {
    "start": (5, "starts", "'runnel run' of three nodes in a new data directory, from a shell"),
    "takeover": (5, "kills", "an orchestrator is killed, until another one owns its partitions"),
    "archive": (2_000, "executions", "diamonds while PostgreSQL is stopped, and what it has later"),
}
WORKLOADS = (*KINDS, *OTHERS)
ON_SERVERS = frozenset({"takeover", "archive"})
# All executions are in memory at once, and each worker is a process: more than this takes the whole
# machine before it says so.
COUNT_MAX = 100_000
CONCURRENCY_MAX = 10_000
WORKERS_MAX = 64
# What is what it is, whatever is asked.
_FIXED = {"start": ("concurrency", "repetitions"), "takeover": ("concurrency", "workers")}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """`redis_url` None starts private servers."""

    workload: str
    backend: Backend
    durability: Durability
    concurrency: int
    workers: int
    count: int
    counted: str
    repetitions: int
    redis_url: str | None = None
    postgres_url: str | None = None

    @property
    def about(self) -> str:
        if self.workload in KINDS:
            return KINDS[self.workload].about
        return OTHERS[self.workload][2]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """As the command line gives them; None is what it does not say."""

    backend: str | None = None
    durability: str | None = None
    concurrency: int | None = None
    workers: int | None = None
    count: int | None = None
    repetitions: int | None = None
    redis_url: str | None = None
    postgres_url: str | None = None


def asked(workload: str, given: Options) -> Asked:
    """Raises InputError."""
    if workload not in WORKLOADS:
        raise InputError(f"expected a workload ({', '.join(WORKLOADS)}), got '{workload}'")
    _check_sizes(workload, given)
    backend = _backend(workload, given)
    durability = _durability(backend, given.durability)
    if given.workers is not None and backend != "redis":
        raise InputError(f"--workers: {backend} has one, in this process; use --concurrency")
    _check_urls(workload, backend, given)
    kind = KINDS.get(workload)
    if kind is None:
        count, counted, _ = OTHERS[workload]
        repetitions = 1
    else:
        count, counted, repetitions = kind.count, kind.counted, kind.repetitions
    return Asked(
        workload=workload,
        backend=backend,
        durability=durability,
        concurrency=given.concurrency or 4,
        workers=given.workers or 1,
        count=given.count or count,
        counted=counted,
        repetitions=given.repetitions or repetitions,
        redis_url=given.redis_url,
        postgres_url=given.postgres_url,
    )


def _check_sizes(workload: str, given: Options) -> None:
    most = {"count": COUNT_MAX, "concurrency": CONCURRENCY_MAX, "workers": WORKERS_MAX}
    for name, bound in most.items():
        value = getattr(given, name)
        if value is not None and value > bound:
            raise InputError(f"--{name}: expected at most {bound}, got {value}")
    for name in _FIXED.get(workload, ()):
        if getattr(given, name) is not None:
            raise InputError(f"--{name}: '{workload}' has no choice of it, use --count")


def _backend(workload: str, given: Options) -> Backend:
    backend = given.backend
    if backend is None and workload == "start":
        return "sqlite"
    if backend is None:
        on_servers = given.redis_url is not None or workload in ON_SERVERS
        return "redis" if on_servers else "sqlite"
    for known in get_args(Backend):
        if backend == known:
            break
    else:
        known_names = ", ".join(get_args(Backend))
        raise InputError(f"--backend: expected one of {known_names}, got '{backend}'")
    if workload in ON_SERVERS and known != "redis":
        raise InputError(f"'{workload}' needs servers: expected --backend redis, got '{backend}'")
    if workload == "start" and known != "sqlite":
        raise InputError(f"'start' begins with nothing: expected --backend sqlite, got '{backend}'")
    found: Backend = known
    return found


def _durability(backend: Backend, given: str | None) -> Durability:
    if given is None:
        return "process"
    if backend != "sqlite":
        raise InputError(f"--durability: only SQLite has a choice of it, not {backend}")
    if given == "power":
        return "power"
    if given == "process":
        return "process"
    raise InputError(f"--durability: expected process or power, got '{given}'")


def _check_urls(workload: str, backend: Backend, given: Options) -> None:
    urls = {"--redis-url": given.redis_url, "--postgres-url": given.postgres_url}
    named = [option for option, url in urls.items() if url is not None]
    if workload == "start" and named:
        raise InputError("'start' begins with nothing, on no server: give no URL")
    if named and backend != "redis":
        raise InputError(f"{named[0]}: expected --backend redis with it, got '{backend}'")
    if given.redis_url is None and given.postgres_url is not None:
        raise InputError("--postgres-url: expected --redis-url with it, got nothing")
    if workload == "archive" and named:
        raise InputError("'archive' stops PostgreSQL: it takes private servers only, give no URL")


# Runs a workload on a site, as often as is wanted.

WARMING = 100
PER_S = "executions_per_s"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The median of each figure, and its least and most."""

    figures: Figures
    spread: dict[str, tuple[float, float]]


async def _nothing_left() -> None:
    """Nothing is left to do when the last execution has ended."""


async def measure(
    kind: Kind,
    site: Site,
    *,
    count: int,
    repetitions: int,
    settle: Callable[[], Awaitable[None]] = _nothing_left,
) -> Measured:
    """`settle` waits for what goes on behind the last end: no run pays for what another left."""
    runs: list[Figures] = []
    await warm_up(site)
    for _ in range(repetitions):
        await settle()
        runs.append(await kind.run(site, count))
    return summarised(runs)


async def warm_up(site: Site) -> None:
    """Runs 100 diamonds."""
    await run_all(site, diamond(), WARMING)


def summarised(runs: list[Figures]) -> Measured:
    return Measured(figures=medians(runs), spread=spreads(runs))


PRIVATE_REDIS = "private, on disk, appendfsync everysec"
PRIVATE_POSTGRES = "private, on disk, fsync on"
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
        "figures": measured.figures,
        "spread": measured.spread,
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
    """Name, median, least and most of each figure."""
    return [_row(label(name), each, measured.spread[name]) for name, each in ordered(measured)]


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
