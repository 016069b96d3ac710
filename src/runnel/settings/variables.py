"""The table of all environment variables: field of Settings, parser, and display format."""

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.settings.model import DEFAULT_STALE_S
from runnel.telemetry.redaction import HIDDEN, SECRET_CHARS_MIN

# Parsers of variables. Each raises ValueError with a description of the expected value.

T = TypeVar("T")
Parser: TypeAlias = Callable[[str], object]

PORT_MAX = 65_535
MILLISECONDS_PER_SECOND = 1_000
_LIST_KEYWORDS: Mapping[str, tuple[str, ...]] = {"all": ("*",), "none": ()}
# module:function, module:* (all functions of the module), package.* (all modules of the package).
_FUNCTION_PATTERN = re.compile(r"[\w.]+:[\w.]+|[\w.]+:\*|[\w.]+\.\*")
_HOST_PATTERN = re.compile(r"(?![\d.]+$)[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?(\.[A-Za-z0-9_-]+)*")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def int_parser(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
    problem = f"a whole number {limits}"

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < minimum:
            raise ValueError(problem)
        if maximum is not None and int(text) > maximum:
            raise ValueError(problem)
        return int(text)

    return parse


def float_parser(minimum: float, description: str = "a number") -> Callable[[str], float]:
    problem = f"{description} of at least {minimum:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(problem) from None
        if not minimum <= value < float("inf"):
            raise ValueError(problem)
        return value

    return parse


def seconds_parser(minimum: float) -> Callable[[str], float]:
    return float_parser(minimum, "a number of seconds")


def milliseconds_parser(minimum: int) -> Callable[[str], float]:
    """Returns a parser of milliseconds, whose result is in seconds."""

    def parse(text: str) -> float:
        return int_parser(minimum)(text) / MILLISECONDS_PER_SECOND

    return parse


def parse_bool(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("'true' or 'false'")
    return _BOOLEANS[text.lower()]


def choice_parser(choices: Mapping[str, T]) -> Callable[[str], T]:
    def parse(text: str) -> T:
        if text not in choices:
            *quoted, last = (f"'{value}'" for value in choices)
            raise ValueError(" or ".join([", ".join(quoted), last]))
        return choices[text]

    return parse


def list_parser(is_valid: Callable[[str], bool], example: str) -> Callable[[str], tuple[str, ...]]:
    """Returns a parser of `all` (as ('*',)), `none` (as ()), or a comma-separated list of names."""

    def parse(text: str) -> tuple[str, ...]:
        if text in _LIST_KEYWORDS:
            return _LIST_KEYWORDS[text]
        names = tuple(name.strip() for name in text.split(","))
        if not all(map(is_valid, names)):
            raise ValueError(f"'all', 'none' or a list such as {example}")
        return names

    return parse


def is_function_pattern(text: str) -> bool:
    return _FUNCTION_PATTERN.fullmatch(text) is not None


def is_program(text: str) -> bool:
    return bool(text) and text.isprintable() and ("/" not in text or text.startswith("/"))


def is_address_pattern(text: str) -> bool:
    """Returns True for an IP address, a network, or a host name."""
    try:
        ip_network(text)
    except ValueError:
        return _HOST_PATTERN.fullmatch(text) is not None
    return True


def is_host(text: str) -> bool:
    """Returns True for an IP address or a host name."""
    return "/" not in text and is_address_pattern(text)


def is_origin(text: str) -> bool:
    """Returns True for an origin as browsers send it: without a path or a final slash."""
    parts = urlsplit(text)
    return parts.scheme in {"http", "https"} and bool(parts.netloc) and text.endswith(parts.netloc)


def parse_secret(text: str) -> str:
    """Returns the secret; raises ValueError if it is too short.

    Masking a short secret would also mask ordinary words.
    """
    if len(text) < SECRET_CHARS_MIN:
        raise ValueError(f"at least {SECRET_CHARS_MIN} characters")
    return text


def parse_trimmed_text(text: str) -> str:
    if text != text.strip() or not text.isprintable():
        raise ValueError("a printable text without leading or trailing spaces")
    return text


def parse_token(text: str) -> str:
    """Returns the token; raises ValueError if it does not fit into an HTTP header."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a token as 'runnel token create' prints it")
    return text


def parse_key_prefix(text: str) -> str:
    """Returns the prefix; raises ValueError if it has braces.

    Braces in a key decide which server of a Redis Cluster stores the key.
    """
    if set("{}") & set(parse_trimmed_text(text)):
        raise ValueError("a text without braces")
    return text


def url_parser(schemes: tuple[str, ...], example: str) -> Callable[[str], str]:
    """Returns a parser that checks the syntax of a URL, and makes no connection."""

    def parse(text: str) -> str:
        problem = f"a URL such as {example}"
        try:
            parts = urlsplit(text)
            has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            raise ValueError(problem) from None
        is_socket = parts.scheme == "unix" and bool(parts.path)
        if parts.scheme not in schemes or not (has_host or is_socket):
            raise ValueError(problem)
        return text

    return parse


def hide_password(text: str) -> str:
    """Masks the user and password of a URL, and its query, which may contain a password, too.

    Works for malformed URLs as well.

    >>> hide_password("redis://:pa/ss@host:6379/0")
    'redis://***@host:6379/0'
    """
    credentials, at, location = text.rpartition("@")
    address, question_mark, _ = location.partition("?")
    scheme, colon, _ = credentials.partition("://")
    prefix = f"{scheme}://" if colon else ""
    query = f"?{HIDDEN}" if question_mark else ""
    return (f"{prefix}{HIDDEN}@" if at else "") + address + query


# The name of a handler follows this prefix.
STALE_PREFIX = "STALE_TIMEOUT_"
# The name of a secret, in upper case, follows this prefix.
SECRET_PREFIX = "RUNNEL_SECRET_"
SECRET_VARIABLE_PATTERN = re.compile(rf"{SECRET_PREFIX}[A-Z_][A-Z0-9_]*")


def format_plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_secret(value: object) -> str:
    return HIDDEN if value else ""


class Variable(msgspec.Struct, frozen=True):
    """One environment variable.

    `field` is the field of Settings, or a path such as `retry.max_retries` or `stale_s.output`.
    `show` formats a value for `runnel config` and masks secrets.
    """

    field: str
    parse: Parser
    show: Callable[[object], str] = format_plain

    def hide(self, text: str) -> str:
        """Returns the text for an error message, with secrets masked."""
        return self.show(text) if self.show is format_secret else hide_password(text)


def _format_or_default(default: str) -> Callable[[object], str]:
    return lambda value: default if value is None else format_plain(value)


def _text_choice_parser(*values: str) -> Parser:
    return choice_parser({value: value for value in values})


def _format_url(value: object) -> str:
    return "" if value is None else hide_password(str(value))


def _format_milliseconds(value: object) -> str:
    return f"{float(str(value)) * MILLISECONDS_PER_SECOND:g}"


def _format_dlq_policy(value: object) -> str:
    return "all" if value else "non_retryable"


def _format_allowed(value: object) -> str:
    if value is None:
        return "all in local runs, none in workers"
    entries = value if isinstance(value, tuple) else ()
    return "all" if entries == ("*",) else ",".join(entries) or "none"


def _build_secret_variable(name: str) -> Variable:
    return Variable(f"secrets.{name}", parse_secret, format_secret)


def _build_stale_name(handler: str) -> str:
    return f"{STALE_PREFIX}{handler.upper()}"


def _build_stale_variable(handler: str) -> Variable:
    return Variable(f"stale_s.{handler}", seconds_parser(1))


def _build_retention_variable(state: str) -> Variable:
    return Variable(
        f"retention_days.{state}",
        float_parser(0, "a number of days"),
        _format_or_default("for ever"),
    )


VARIABLES: Mapping[str, Variable] = {
    "RUNNEL_ENV": Variable("environment", _text_choice_parser("dev", "test", "prod")),
    "RUNNEL_LOG_FORMAT": Variable("log_format", _text_choice_parser("auto", "human", "json")),
    "RUNNEL_LOG_LEVEL": Variable(
        "log_level", _text_choice_parser("debug", "info", "warning", "error")
    ),
    "RUNNEL_DATA_DIR": Variable("data_dir", Path),
    "RUNNEL_DURABILITY": Variable("durability", _text_choice_parser("process", "power")),
    "RUNNEL_CRASH_LOOP_LIMIT": Variable("crashes_max", int_parser(1)),
    "RUNNEL_CACHED_EXECUTIONS": Variable("cached_executions_max", int_parser(1)),
    "RUNNEL_PARTITIONS": Variable(
        "partitions", int_parser(1, 4_096), _format_or_default("16 for a new store")
    ),
    "RUNNEL_ALLOW_PYTHON": Variable(
        "allowed_functions",
        list_parser(is_function_pattern, "'reports:build,my_package.*'"),
        _format_allowed,
    ),
    "RUNNEL_ALLOW_SHELL": Variable(
        "allowed_programs", list_parser(is_program, "'git,/usr/bin/convert'"), _format_allowed
    ),
    "RUNNEL_ALLOW_PRIVATE_ADDRESSES": Variable(
        "allowed_addresses",
        list_parser(is_address_pattern, "'localhost,10.1.0.0/16'"),
        _format_allowed,
    ),
    "RUNNEL_LLM_URL": Variable(
        "llm_url", url_parser(("http", "https"), "https://api.openai.com/v1"), _format_url
    ),
    "RUNNEL_LLM_API_KEY": Variable("llm_api_key", parse_secret, format_secret),
    "RUNNEL_MOCK_SERVICES": Variable("mocks_services", parse_bool),
    "RUNNEL_SECRETS_FILE": Variable("secrets_file", Path),
    "RUNNEL_API_HOST": Variable("api_host", parse_trimmed_text),
    "RUNNEL_API_PORT": Variable("api_port", int_parser(0, PORT_MAX)),
    "RUNNEL_API_HOSTS": Variable(
        "api_hosts", list_parser(is_host, "'runnel.example.com,10.0.0.5'"), _format_allowed
    ),
    "RUNNEL_API_ORIGINS": Variable(
        "api_origins", list_parser(is_origin, "'https://app.example.com'"), _format_allowed
    ),
    "RUNNEL_API_PROXIES": Variable(
        "api_proxies", list_parser(is_host, "'10.0.0.1'"), _format_allowed
    ),
    "RUNNEL_API_BODY_MAX": Variable("body_bytes_max", int_parser(1_000)),
    "RUNNEL_API_RATE_LIMIT": Variable("requests_per_minute", int_parser(0)),
    "RUNNEL_API_TOKEN_RATE_LIMIT": Variable("token_requests_per_minute", int_parser(0)),
    "RUNNEL_QUEUE_LIMIT": Variable("queue_tasks_max", int_parser(1)),
    "RUNNEL_SERVER": Variable(
        "server_url", url_parser(("http", "https"), "https://runnel.example.com"), _format_url
    ),
    "RUNNEL_TOKEN": Variable("server_token", parse_token, format_secret),
    "RUNNEL_METRICS_HOST": Variable("metrics_host", parse_trimmed_text),
    "RUNNEL_METRICS_PORT": Variable(
        "metrics_port", int_parser(0, PORT_MAX), _format_or_default("off")
    ),
    "REDIS_URL": Variable(
        "redis_url", url_parser(("redis", "rediss", "unix"), "redis://host:6379/0"), _format_url
    ),
    "REDIS_HOST": Variable("redis_host", parse_trimmed_text),
    "REDIS_PORT": Variable("redis_port", int_parser(1, PORT_MAX)),
    "REDIS_DB": Variable("redis_db", int_parser(0)),
    "REDIS_USERNAME": Variable("redis_username", parse_trimmed_text),
    "REDIS_PASSWORD": Variable("redis_password", str, format_secret),
    "REDIS_PREFIX": Variable("redis_prefix", parse_key_prefix),
    "REDIS_MAX_CONNECTIONS": Variable("redis_connections_max", int_parser(1)),
    "REDIS_SOCKET_TIMEOUT": Variable("redis_timeout_s", seconds_parser(0.1)),
    "REDIS_STREAM_BLOCK_MS": Variable(
        "redis_block_s", milliseconds_parser(10), _format_milliseconds
    ),
    "POSTGRES_URL": Variable(
        "postgres_url",
        url_parser(("postgres", "postgresql"), "postgresql://user@host:5432/runnel"),
        _format_url,
    ),
    "POSTGRES_HOST": Variable("postgres_host", parse_trimmed_text),
    "POSTGRES_PORT": Variable("postgres_port", int_parser(1, PORT_MAX)),
    "POSTGRES_DB": Variable("postgres_db", parse_trimmed_text),
    "POSTGRES_USER": Variable("postgres_user", parse_trimmed_text),
    "POSTGRES_PASSWORD": Variable("postgres_password", str, format_secret),
    "POSTGRES_SCHEMA": Variable("postgres_schema", parse_trimmed_text),
    "POSTGRES_MAX_CONNECTIONS": Variable("postgres_connections_max", int_parser(1)),
    "POSTGRES_TIMEOUT": Variable("postgres_timeout_s", seconds_parser(0.1)),
    "WORKER_CONCURRENCY": Variable("worker_concurrency", int_parser(1)),
    "WORKER_HEARTBEAT_INTERVAL": Variable("heartbeat_interval_s", seconds_parser(0.1)),
    "WORKER_HEARTBEAT_TIMEOUT": Variable("heartbeat_timeout_s", seconds_parser(0.3)),
    "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": Variable("shutdown_timeout_s", seconds_parser(0)),
    "ORCHESTRATOR_LEASE_TIMEOUT": Variable("lease_s", seconds_parser(0.5)),
    "ORCHESTRATOR_STALE_CLAIM_INTERVAL": Variable("sweep_s", seconds_parser(0.1)),
    "ORCHESTRATOR_RECOVERY_TIMEOUT": Variable("repair_after_s", seconds_parser(1)),
    "ORCHESTRATOR_STALE_RESULT_TIMEOUT": Variable("unread_s", seconds_parser(1)),
    "RUNNEL_START_TIMEOUT": Variable("start_timeout_s", seconds_parser(0)),
    "ORCHESTRATOR_CHECKPOINT_INTERVAL": Variable("archive_alarm_s", seconds_parser(1)),
    "ORCHESTRATOR_JOURNAL_MAX": Variable("journal_entries_max", int_parser(100)),
    "RETRY_MAX_RETRIES": Variable("retry.max_retries", int_parser(0)),
    "RETRY_INITIAL_DELAY": Variable("retry.initial_delay", seconds_parser(0)),
    "RETRY_MAX_DELAY": Variable("retry.max_delay", seconds_parser(0)),
    "RETRY_EXPONENTIAL_BASE": Variable("retry.exponential_base", float_parser(1)),
    "RETRY_JITTER": Variable("retry.jitter", parse_bool),
    "UNSERVED_TIMEOUT": Variable("unserved_s", seconds_parser(1)),
    **{_build_stale_name(handler): _build_stale_variable(handler) for handler in DEFAULT_STALE_S},
    **{
        f"RETENTION_{state}_DAYS": _build_retention_variable(state)
        for state in sorted(FINAL_EXECUTION_STATES)
    },
    "DLQ_MAX_LENGTH": Variable("letters_max", int_parser(1)),
    "DLQ_POLICY": Variable(
        "keeps_exhausted", choice_parser({"non_retryable": False, "all": True}), _format_dlq_policy
    ),
}


def find_variable(name: str) -> Variable | None:
    """Returns the variable of a setting; None if there is no such setting.

    Settings are VARIABLES, STALE_TIMEOUT_<HANDLER> and RUNNEL_SECRET_<NAME>.
    """
    known = VARIABLES.get(name)
    if known is None and SECRET_VARIABLE_PATTERN.fullmatch(name):
        return _build_secret_variable(name.removeprefix(SECRET_PREFIX).lower())
    if known is None and name.startswith(STALE_PREFIX) and name != STALE_PREFIX:
        return _build_stale_variable(name.removeprefix(STALE_PREFIX).lower())
    return known
