"""The table of all settings: environment variable, field, what it may be, how it is shown."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from runnel.core.states import EXECUTION_FINAL
from runnel.settings.model import STALE_S
from runnel.settings.parsers import (
    MILLISECONDS,
    PORT_MAX,
    Parse,
    bearer,
    hidden_text,
    is_address_pattern,
    is_function_pattern,
    is_host,
    is_origin,
    is_program,
    milliseconds,
    names,
    number,
    one_of,
    prefix,
    seconds,
    truth,
    url,
    whole,
    without_password,
    word,
)

HIDDEN = "***"
# Followed by the name of any handler.
STALE = "STALE_TIMEOUT_"
# Followed by the name of any secret, in capitals.
SECRET = "RUNNEL_SECRET_"
SECRET_NAME = re.compile(rf"{SECRET}[A-Z_][A-Z0-9_]*")


def plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def secret(value: object) -> str:
    return HIDDEN if value else ""


class Variable(msgspec.Struct, frozen=True):
    """`field` may lead into a part of the settings: `retry.max_retries`, `stale_s.output`.

    `show` gives the text of a value as `runnel config` prints it, without secrets.
    """

    field: str
    parse: Parse
    show: Callable[[object], str] = plain

    def hide(self, text: str) -> str:
        """The text as a message may repeat it."""
        return self.show(text) if self.show is secret else without_password(text)


def _or(otherwise: str) -> Callable[[object], str]:
    return lambda value: otherwise if value is None else plain(value)


def _alike(*values: str) -> Parse:
    return one_of({value: value for value in values})


def _shown_url(value: object) -> str:
    return "" if value is None else without_password(str(value))


def _shown_milliseconds(value: object) -> str:
    return f"{float(str(value)) * MILLISECONDS:g}"


def _shown_policy(value: object) -> str:
    return "all" if value else "non_retryable"


def _shown_allowed(value: object) -> str:
    if value is None:
        return "all, on servers none"
    given = value if isinstance(value, tuple) else ()
    return "all" if given == ("*",) else ",".join(given) or "none"


def _secret(name: str) -> Variable:
    return Variable(f"secrets.{name}", hidden_text, secret)


def _stale_name(handler: str) -> str:
    return f"{STALE}{handler.upper()}"


def _stale(handler: str) -> Variable:
    return Variable(f"stale_s.{handler}", seconds(1))


def _kept(state: str) -> Variable:
    return Variable(f"retention_days.{state}", number(0, "a number of days"), _or("for ever"))


VARIABLES: Mapping[str, Variable] = {
    "RUNNEL_ENV": Variable("environment", _alike("dev", "test", "prod")),
    "RUNNEL_LOG_FORMAT": Variable("log_format", _alike("auto", "human", "json")),
    "RUNNEL_LOG_LEVEL": Variable("log_level", _alike("debug", "info", "warning", "error")),
    "RUNNEL_DATA_DIR": Variable("data_dir", Path),
    "RUNNEL_DURABILITY": Variable("durability", _alike("process", "power")),
    "RUNNEL_CRASH_LOOP_LIMIT": Variable("losses_max", whole(1)),
    "RUNNEL_CACHED_EXECUTIONS": Variable("cached_executions_max", whole(1)),
    "RUNNEL_PARTITIONS": Variable("partitions", whole(1, 4_096), _or("16 for a new store")),
    "RUNNEL_ALLOW_PYTHON": Variable(
        "allowed_functions",
        names(is_function_pattern, "'reports:build,my_package.*'"),
        _shown_allowed,
    ),
    "RUNNEL_ALLOW_SHELL": Variable(
        "allowed_programs", names(is_program, "'git,/usr/bin/convert'"), _shown_allowed
    ),
    "RUNNEL_ALLOW_PRIVATE_ADDRESSES": Variable(
        "allowed_addresses",
        names(is_address_pattern, "'localhost,10.1.0.0/16'"),
        _shown_allowed,
    ),
    "RUNNEL_LLM_URL": Variable(
        "llm_url", url(("http", "https"), "https://api.openai.com/v1"), _shown_url
    ),
    "RUNNEL_LLM_API_KEY": Variable("llm_api_key", hidden_text, secret),
    "RUNNEL_SECRETS_FILE": Variable("secrets_file", Path),
    "RUNNEL_API_HOST": Variable("api_host", word),
    "RUNNEL_API_PORT": Variable("api_port", whole(0, PORT_MAX)),
    "RUNNEL_API_HOSTS": Variable(
        "api_hosts", names(is_host, "'runnel.example.com,10.0.0.5'"), _shown_allowed
    ),
    "RUNNEL_API_ORIGINS": Variable(
        "api_origins", names(is_origin, "'https://app.example.com'"), _shown_allowed
    ),
    "RUNNEL_API_PROXIES": Variable("api_proxies", names(is_host, "'10.0.0.1'"), _shown_allowed),
    "RUNNEL_API_BODY_MAX": Variable("body_bytes_max", whole(1_000)),
    "RUNNEL_API_RATE_LIMIT": Variable("requests_per_minute", whole(0)),
    "RUNNEL_API_TOKEN_RATE_LIMIT": Variable("token_requests_per_minute", whole(0)),
    "RUNNEL_QUEUE_LIMIT": Variable("queue_tasks_max", whole(1)),
    "RUNNEL_SERVER": Variable(
        "server_url", url(("http", "https"), "https://runnel.example.com"), _shown_url
    ),
    "RUNNEL_TOKEN": Variable("server_token", bearer, secret),
    "RUNNEL_METRICS_HOST": Variable("metrics_host", word),
    "RUNNEL_METRICS_PORT": Variable("metrics_port", whole(0, PORT_MAX), _or("off")),
    "REDIS_URL": Variable(
        "redis_url", url(("redis", "rediss", "unix"), "redis://host:6379/0"), _shown_url
    ),
    "REDIS_HOST": Variable("redis_host", word),
    "REDIS_PORT": Variable("redis_port", whole(1, PORT_MAX)),
    "REDIS_DB": Variable("redis_db", whole(0)),
    "REDIS_USERNAME": Variable("redis_username", word),
    "REDIS_PASSWORD": Variable("redis_password", str, secret),
    "REDIS_PREFIX": Variable("redis_prefix", prefix),
    "REDIS_MAX_CONNECTIONS": Variable("redis_connections_max", whole(1)),
    "REDIS_SOCKET_TIMEOUT": Variable("redis_timeout_s", seconds(0.1)),
    "REDIS_STREAM_BLOCK_MS": Variable("redis_block_s", milliseconds(10), _shown_milliseconds),
    "POSTGRES_URL": Variable(
        "postgres_url",
        url(("postgres", "postgresql"), "postgresql://user@host:5432/runnel"),
        _shown_url,
    ),
    "POSTGRES_HOST": Variable("postgres_host", word),
    "POSTGRES_PORT": Variable("postgres_port", whole(1, PORT_MAX)),
    "POSTGRES_DB": Variable("postgres_db", word),
    "POSTGRES_USER": Variable("postgres_user", word),
    "POSTGRES_PASSWORD": Variable("postgres_password", str, secret),
    "POSTGRES_SCHEMA": Variable("postgres_schema", word),
    "POSTGRES_MAX_CONNECTIONS": Variable("postgres_connections_max", whole(1)),
    "POSTGRES_TIMEOUT": Variable("postgres_timeout_s", seconds(0.1)),
    "WORKER_CONCURRENCY": Variable("worker_concurrency", whole(1)),
    "WORKER_HEARTBEAT_INTERVAL": Variable("heartbeat_interval_s", seconds(0.1)),
    "WORKER_HEARTBEAT_TIMEOUT": Variable("heartbeat_timeout_s", seconds(0.3)),
    "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": Variable("shutdown_timeout_s", seconds(0)),
    "ORCHESTRATOR_LEASE_TIMEOUT": Variable("lease_s", seconds(0.5)),
    "ORCHESTRATOR_STALE_CLAIM_INTERVAL": Variable("sweep_s", seconds(0.1)),
    "ORCHESTRATOR_RECOVERY_TIMEOUT": Variable("repair_after_s", seconds(1)),
    "ORCHESTRATOR_STALE_RESULT_TIMEOUT": Variable("unread_s", seconds(1)),
    "ORCHESTRATOR_CHECKPOINT_INTERVAL": Variable("archive_alarm_s", seconds(1)),
    "ORCHESTRATOR_JOURNAL_MAX": Variable("journal_entries_max", whole(100)),
    "RETRY_MAX_RETRIES": Variable("retry.max_retries", whole(0)),
    "RETRY_INITIAL_DELAY": Variable("retry.initial_delay", seconds(0)),
    "RETRY_MAX_DELAY": Variable("retry.max_delay", seconds(0)),
    "RETRY_EXPONENTIAL_BASE": Variable("retry.exponential_base", number(1)),
    "RETRY_JITTER": Variable("retry.jitter", truth),
    "UNSERVED_TIMEOUT": Variable("unserved_s", seconds(1)),
    **{_stale_name(handler): _stale(handler) for handler in STALE_S},
    **{f"RETENTION_{state}_DAYS": _kept(state) for state in sorted(EXECUTION_FINAL)},
    "DLQ_MAX_LENGTH": Variable("letters_max", whole(1)),
    "DLQ_POLICY": Variable(
        "keeps_exhausted", one_of({"non_retryable": False, "all": True}), _shown_policy
    ),
}


def variable_of(name: str) -> Variable | None:
    """Those of the table, the timeout of any handler, any secret; None for what is no setting."""
    known = VARIABLES.get(name)
    if known is None and SECRET_NAME.fullmatch(name):
        return _secret(name.removeprefix(SECRET).lower())
    if known is None and name.startswith(STALE) and name != STALE:
        return _stale(name.removeprefix(STALE).lower())
    return known
