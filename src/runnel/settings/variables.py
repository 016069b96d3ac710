"""The table of all settings: environment variable, field, what it may be, how it is shown."""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from runnel.core.states import EXECUTION_FINAL
from runnel.settings.model import STALE_S

# What the text of an environment variable may be; each parser raises ValueError: "expected …".

T = TypeVar("T")
Parse: TypeAlias = Callable[[str], object]

PORT_MAX = 65_535
MILLISECONDS = 1_000
SECRET_CHARS_MIN = 4
_WHOLE_LISTS: Mapping[str, tuple[str, ...]] = {"all": ("*",), "none": ()}
# module:function, module:* (all that it defines), package.* (with all modules below).
_FUNCTIONS = re.compile(r"[\w.]+:[\w.]+|[\w.]+:\*|[\w.]+\.\*")
_HOST = re.compile(r"(?![\d.]+$)[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_-]+)*")
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    what = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"a whole number {what}")
        if most is not None and int(text) > most:
            raise ValueError(f"a whole number {what}")
        return int(text)

    return parse


def number(least: float, what: str = "a number") -> Callable[[str], float]:
    problem = f"{what} of at least {least:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(problem) from None
        if not least <= value < float("inf"):
            raise ValueError(problem)
        return value

    return parse


def seconds(least: float) -> Callable[[str], float]:
    return number(least, "a number of seconds")


def milliseconds(least: int) -> Callable[[str], float]:
    """Given in milliseconds, kept in seconds."""

    def parse(text: str) -> float:
        return whole(least)(text) / MILLISECONDS

    return parse


def truth(text: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ValueError("'true' or 'false'")
    return _TRUTH[text.lower()]


def one_of(values: Mapping[str, T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        if text not in values:
            *others, last = (f"'{value}'" for value in values)
            raise ValueError(" or ".join([", ".join(others), last]))
        return values[text]

    return parse


def names(fits: Callable[[str], bool], example: str) -> Callable[[str], tuple[str, ...]]:
    """`all` as ('*',), `none` as (), or names with commas between them."""

    def parse(text: str) -> tuple[str, ...]:
        if text in _WHOLE_LISTS:
            return _WHOLE_LISTS[text]
        found = tuple(each.strip() for each in text.split(","))
        if not all(map(fits, found)):
            raise ValueError(f"'all', 'none' or a list such as {example}")
        return found

    return parse


def is_function_pattern(text: str) -> bool:
    return _FUNCTIONS.fullmatch(text) is not None


def is_program(text: str) -> bool:
    return bool(text) and text.isprintable() and ("/" not in text or text.startswith("/"))


def is_address_pattern(text: str) -> bool:
    """An address, a network, or the name of a host."""
    try:
        ip_network(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def is_host(text: str) -> bool:
    """An address, or the name of a host."""
    return "/" not in text and is_address_pattern(text)


def is_origin(text: str) -> bool:
    """As browsers write it: no path, not even a slash."""
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and text.endswith(parts.netloc)


def hidden_text(text: str) -> str:
    """A secret that is shorter could not be hidden without damage to innocent words."""
    if len(text) < SECRET_CHARS_MIN:
        raise ValueError(f"at least {SECRET_CHARS_MIN} characters")
    return text


def word(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("a text without blanks around it")
    return text


def bearer(text: str) -> str:
    """What a header can hold."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a token as 'runnel token create' prints it")
    return text


def prefix(text: str) -> str:
    """In front of every key: braces would decide which server of a cluster has it."""
    if set("{}") & set(word(text)):
        raise ValueError("a text without braces")
    return text


def url(schemes: tuple[str, ...], example: str) -> Callable[[str], str]:
    """Checked for its shape only: whether anybody answers there is found out later."""

    def parse(text: str) -> str:
        problem = f"a URL such as {example}"
        try:
            parts = urlsplit(text)
            is_whole = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            raise ValueError(problem) from None
        is_socket = parts.scheme == "unix" and bool(parts.path)
        if parts.scheme not in schemes or not (is_whole or is_socket):
            raise ValueError(problem)
        return text

    return parse


def without_password(text: str) -> str:
    """A URL that may be shown, however it is written: without what stands before the host, and
    without its query, where a password may be too.

    >>> without_password("redis://:pa/ss@host:6379/0")
    'redis://***@host:6379/0'
    """
    before, at, rest = text.rpartition("@")
    place, mark, _ = rest.partition("?")
    scheme, colon, _ = before.partition("://")
    shown = f"{scheme}://" if colon else ""
    return (f"{shown}***@" if at else "") + place + (f"{mark}***" if mark else "")


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
