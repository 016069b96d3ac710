"""All settings with their defaults, the defaults per environment, and checks for conflicts."""

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

# How long a task may wait in a handler's queue before the queue is marked as stale.
DEFAULT_STALE_S: Mapping[str, float] = {
    "input": 30.0,
    "output": 30.0,
    "call_external_service": 120.0,
    "llm_service": 180.0,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one process. `variables.VARIABLES` maps environment variables to fields.

    If neither Redis nor a Runnel server is set, commands use the data directory. The fields
    `allowed_…` hold names and patterns; `*` allows all. If such a field is None, a local run allows
    all, and a worker allows nothing.
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

    # How long an orchestrator owns a partition without renewing its lease.
    lease_s: float = 10.0
    # How often the watchdog inspects all running executions, and when it repairs one.
    sweep_s: float = 15.0
    repair_after_s: float = 60.0
    # The age at which an unread inbox entry is logged as `inbox.stale`.
    unread_s: float = 30.0
    # How many processes may die while they run a task alone before it becomes a dead letter.
    crashes_max: int = 3
    # Whether tasks that used up their retries become dead letters, too.
    keeps_exhausted: bool = False
    cached_executions_max: int = 5_000
    retry: RetryPolicy = RetryPolicy()

    allowed_functions: tuple[str, ...] | None = None
    allowed_programs: tuple[str, ...] | None = None
    allowed_addresses: tuple[str, ...] = ()
    llm_url: str = "https://api.openai.com/v1"
    llm_api_key: str | None = None
    # Whether services are mocked where a config has no `mock`.
    mocks_services: bool = False
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
    # How long a role waits at its start for Redis and PostgreSQL.
    start_timeout_s: float = 60.0
    # The delay of the archive at which `archive.late` is logged.
    archive_alarm_s: float = 10.0
    # How many commits of a partition may wait for the archive.
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

    # The approximate number of dead letters that each queue keeps in Redis.
    letters_max: int = 10_000
    # How long a task waits in a queue that no worker serves before the task fails.
    unserved_s: float = 60.0
    stale_s: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(DEFAULT_STALE_S))

    @property
    def has_server(self) -> bool:
        return self.server_url is not None

    @property
    def is_remote(self) -> bool:
        """True if other processes run the executions that commands start."""
        return self.has_server or self.has_redis

    @property
    def has_redis(self) -> bool:
        return self.redis_url is not None or self.redis_host is not None

    @property
    def has_postgres(self) -> bool:
        return self.postgres_url is not None or self.postgres_host is not None


# The defaults of each environment that differ from the defaults of Settings.
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
    """Returns a heartbeat interval that fits the timeout, if only the timeout was given."""
    timeout_s = values.get("heartbeat_timeout_s")
    if "heartbeat_timeout_s" not in given_fields or "heartbeat_interval_s" in given_fields:
        return {}
    default_s = values.get("heartbeat_interval_s", Settings().heartbeat_interval_s)
    if not isinstance(timeout_s, float) or not isinstance(default_s, float):
        return {}
    return {"heartbeat_interval_s": min(default_s, timeout_s / HEARTBEATS_PER_TIMEOUT)}


def find_conflicting_settings(settings: Settings) -> Iterator[str]:
    """Yields a sentence for each pair of settings that contradict each other."""
    interval_s, timeout_s = settings.heartbeat_interval_s, settings.heartbeat_timeout_s
    if timeout_s < BEATS_PER_TIMEOUT_MIN * interval_s:
        yield (
            f"WORKER_HEARTBEAT_TIMEOUT: expected at least {BEATS_PER_TIMEOUT_MIN:g} times "
            f"WORKER_HEARTBEAT_INTERVAL ({interval_s:g}), got {timeout_s:g}"
        )
    retry = settings.retry
    if retry.max_delay < retry.initial_delay:
        yield (
            f"RETRY_MAX_DELAY: expected at least RETRY_INITIAL_DELAY "
            f"({retry.initial_delay:g}), got {retry.max_delay:g}"
        )
