"""Every setting with its default; what differs by environment; what must fit together."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from runnel.core.retry import RetryPolicy
from runnel.ports.workers import BEATS_PER_TIMEOUT_MIN

Durability: TypeAlias = Literal["process", "power"]
Environment: TypeAlias = Literal["dev", "test", "prod"]
LogFormat: TypeAlias = Literal["auto", "human", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

HEARTBEATS_PER_TIMEOUT = 4.5

# How long a task of a handler may wait in its queue before that is remarkable (document 000).
DEFAULT_STALE_S: Mapping[str, float] = {
    "input": 30.0,
    "output": 30.0,
    "call_external_service": 120.0,
    "llm_service": 180.0,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Which environment variable sets a field is in `variables.VARIABLES`.

    `redis_url` and `redis_host` are None when nobody has set them: then the command line works on
    the data directory. `allowed_…` are names and patterns of which `*` stands for all; None leaves
    it to the place: everything for a user on the own machine, nothing on servers.
    """

    environment: Environment = "dev"
    log_format: LogFormat = "auto"
    log_level: LogLevel = "info"

    data_dir: Path = Path(".runnel")
    durability: Durability = "process"

    worker_concurrency: int = 4
    heartbeat_interval_s: float = 2.0
    heartbeat_timeout_s: float = 9.0
    shutdown_timeout_s: float = 30.0

    lease_s: float = 10.0
    sweep_s: float = 15.0
    repair_after_s: float = 60.0
    unread_s: float = 30.0
    losses_max: int = 10
    keeps_exhausted: bool = False
    cached_executions_max: int = 5_000
    retry: RetryPolicy = RetryPolicy()

    allowed_functions: tuple[str, ...] | None = None
    allowed_programs: tuple[str, ...] | None = None
    allowed_addresses: tuple[str, ...] = ()
    llm_url: str = "https://api.openai.com/v1"
    llm_api_key: str | None = None
    secrets: Mapping[str, str] = {}
    secrets_file: Path | None = None

    server_url: str | None = None
    server_token: str | None = None

    redis_url: str | None = None
    redis_host: str | None = None
    redis_port: int = 6379
    redis_db: int = 0
    redis_username: str | None = None
    redis_password: str | None = None
    redis_prefix: str = "runnel"
    redis_connections_max: int = 50
    redis_timeout_s: float = 10.0
    redis_block_s: float = 5.0
    partitions: int | None = None

    postgres_url: str | None = None
    postgres_host: str | None = None
    postgres_port: int = 5432
    postgres_db: str = "runnel"
    postgres_user: str | None = None
    postgres_password: str | None = None
    postgres_schema: str = "runnel"
    postgres_connections_max: int = 10
    postgres_timeout_s: float = 10.0
    archive_alarm_s: float = 10.0
    journal_entries_max: int = 100_000
    retention_days: Mapping[str, float] = {}

    api_host: str = "127.0.0.1"
    api_port: int = 8080
    api_hosts: tuple[str, ...] = ()
    api_origins: tuple[str, ...] = ()
    api_proxies: tuple[str, ...] = ()
    body_bytes_max: int = 10_000_000
    requests_per_minute: int = 60
    token_requests_per_minute: int = 6_000
    queue_tasks_max: int = 100_000
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None

    letters_max: int = 10_000
    unserved_s: float = 60.0
    stale_s: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(DEFAULT_STALE_S))

    @property
    def has_server(self) -> bool:
        return self.server_url is not None

    @property
    def is_remote(self) -> bool:
        """Whether what commands begin is run by other processes."""
        return self.has_server or self.has_redis

    @property
    def has_redis(self) -> bool:
        return self.redis_url is not None or self.redis_host is not None

    @property
    def has_postgres(self) -> bool:
        return self.postgres_url is not None or self.postgres_host is not None


# The fields in which an environment differs from the defaults above.
ENVIRONMENTS: Mapping[Environment, Mapping[str, object]] = {
    "dev": {},
    "test": {
        "log_level": "warning",
        "heartbeat_interval_s": 0.5,
        "heartbeat_timeout_s": 3.0,
        "lease_s": 3.0,
        "shutdown_timeout_s": 5.0,
    },
    "prod": {"log_format": "json"},
}


def derive_heartbeat_interval(
    values: Mapping[str, object], given_fields: frozenset[str]
) -> dict[str, object]:
    """Who shortens the timeout alone means the beats too, unless they are given."""
    timeout_s = values.get("heartbeat_timeout_s")
    if "heartbeat_timeout_s" not in given_fields or "heartbeat_interval_s" in given_fields:
        return {}
    default_s = values.get("heartbeat_interval_s", Settings().heartbeat_interval_s)
    if not isinstance(timeout_s, float) or not isinstance(default_s, float):
        return {}
    return {"heartbeat_interval_s": min(default_s, timeout_s / HEARTBEATS_PER_TIMEOUT)}


def find_conflicting_settings(settings: Settings) -> Iterator[str]:
    """One sentence for each pair of settings that does not fit together."""
    beat_s, dead_s = settings.heartbeat_interval_s, settings.heartbeat_timeout_s
    if dead_s < BEATS_PER_TIMEOUT_MIN * beat_s:
        yield (
            f"WORKER_HEARTBEAT_TIMEOUT: expected at least {BEATS_PER_TIMEOUT_MIN:g} times "
            f"WORKER_HEARTBEAT_INTERVAL ({beat_s:g}), got {dead_s:g}"
        )
    retry = settings.retry
    if retry.max_delay < retry.initial_delay:
        yield (
            f"RETRY_MAX_DELAY: expected at least RETRY_INITIAL_DELAY "
            f"({retry.initial_delay:g}), got {retry.max_delay:g}"
        )
