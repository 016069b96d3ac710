"""What is to be measured, checked: every combination that makes no sense is one sentence."""

from typing import Literal, TypeAlias, get_args

import msgspec

from runnel.benchmarks.kinds import KINDS
from runnel.errors import InputError
from runnel.settings.model import Durability

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
