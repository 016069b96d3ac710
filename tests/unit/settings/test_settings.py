"""Settings: errors name every wrong value and never show secrets."""

from pathlib import Path

import pytest

from runnel.app.stores import (
    build_postgres_display_url,
    build_postgres_url,
    build_redis_display_url,
    build_redis_url,
    list_connection_secrets,
)
from runnel.core.retry import RetryPolicy
from runnel.errors import InputError
from runnel.settings import (
    SettingsError,
    find_misspelled_variables,
    list_settings,
    read_settings,
    read_sourced_settings,
)
from runnel.settings.model import Settings

EVERYTHING: dict[str, tuple[str, dict[str, object]]] = {
    "RUNNEL_ENV": ("prod", {"environment": "prod"}),
    "RUNNEL_LOG_FORMAT": ("human", {"log_format": "human"}),
    "RUNNEL_LOG_LEVEL": ("debug", {"log_level": "debug"}),
    "RUNNEL_DATA_DIR": ("/tmp/x", {"data_dir": Path("/tmp/x")}),
    "RUNNEL_DURABILITY": ("power", {"durability": "power"}),
    "RUNNEL_CRASH_LOOP_LIMIT": ("9", {"crashes_max": 9}),
    "RUNNEL_CACHED_EXECUTIONS": ("10", {"cached_executions_max": 10}),
    "RUNNEL_PARTITIONS": ("64", {"partitions": 64}),
    "RUNNEL_SERVER": ("https://runnel.internal", {"server_url": "https://runnel.internal"}),
    "RUNNEL_TOKEN": ("rnl_1_secret", {"server_token": "rnl_1_secret"}),
    "REDIS_URL": ("rediss://h:1/2", {"redis_url": "rediss://h:1/2"}),
    "REDIS_HOST": ("h", {"redis_host": "h"}),
    "RUNNEL_API_HOST": ("0.0.0.0", {"api_host": "0.0.0.0"}),
    "RUNNEL_METRICS_HOST": ("0.0.0.0", {"metrics_host": "0.0.0.0"}),
    "RUNNEL_METRICS_PORT": ("9100", {"metrics_port": 9100}),
    "RUNNEL_API_PORT": ("81", {"api_port": 81}),
    "RUNNEL_API_HOSTS": ("a.example,10.0.0.5", {"api_hosts": ("a.example", "10.0.0.5")}),
    "RUNNEL_API_ORIGINS": ("https://a.example", {"api_origins": ("https://a.example",)}),
    "RUNNEL_API_PROXIES": ("10.0.0.1", {"api_proxies": ("10.0.0.1",)}),
    "RUNNEL_API_BODY_MAX": ("1000", {"body_bytes_max": 1_000}),
    "RUNNEL_API_RATE_LIMIT": ("5", {"requests_per_minute": 5}),
    "RUNNEL_API_TOKEN_RATE_LIMIT": ("50", {"token_requests_per_minute": 50}),
    "RUNNEL_QUEUE_LIMIT": ("7", {"queue_tasks_max": 7}),
    "RUNNEL_ALLOW_PYTHON": (
        "reports:build, jobs:*,tools.*",
        {"allowed_functions": ("reports:build", "jobs:*", "tools.*")},
    ),
    "RUNNEL_ALLOW_SHELL": ("git,/bin/ls", {"allowed_programs": ("git", "/bin/ls")}),
    "RUNNEL_ALLOW_PRIVATE_ADDRESSES": (
        "localhost,10.1.0.0/16,::1",
        {"allowed_addresses": ("localhost", "10.1.0.0/16", "::1")},
    ),
    "RUNNEL_LLM_URL": ("http://models:8000/v1", {"llm_url": "http://models:8000/v1"}),
    "RUNNEL_LLM_API_KEY": ("sk-geheim", {"llm_api_key": "sk-geheim"}),
    "RUNNEL_MOCK_SERVICES": ("true", {"mocks_services": True}),
    "RUNNEL_SECRETS_FILE": ("/run/secrets", {"secrets_file": Path("/run/secrets")}),
    "REDIS_PORT": ("6380", {"redis_port": 6380}),
    "REDIS_DB": ("3", {"redis_db": 3}),
    "REDIS_USERNAME": ("ada", {"redis_username": "ada"}),
    "REDIS_PASSWORD": ("geheim", {"redis_password": "geheim"}),
    "REDIS_MAX_CONNECTIONS": ("7", {"redis_connections_max": 7}),
    "REDIS_SOCKET_TIMEOUT": ("2.5", {"redis_timeout_s": 2.5}),
    "REDIS_STREAM_BLOCK_MS": ("250", {"redis_block_s": 0.25}),
    "REDIS_PREFIX": ("mine", {"redis_prefix": "mine"}),
    "POSTGRES_URL": ("postgresql://p/d", {"postgres_url": "postgresql://p/d"}),
    "POSTGRES_HOST": ("p", {"postgres_host": "p"}),
    "POSTGRES_PORT": ("5433", {"postgres_port": 5433}),
    "POSTGRES_DB": ("d", {"postgres_db": "d"}),
    "POSTGRES_USER": ("ada", {"postgres_user": "ada"}),
    "POSTGRES_PASSWORD": ("geheim", {"postgres_password": "geheim"}),
    "POSTGRES_SCHEMA": ("s", {"postgres_schema": "s"}),
    "POSTGRES_MAX_CONNECTIONS": ("3", {"postgres_connections_max": 3}),
    "RUNNEL_START_TIMEOUT": ("0", {"start_timeout_s": 0.0}),
    "POSTGRES_TIMEOUT": ("2", {"postgres_timeout_s": 2.0}),
    "ORCHESTRATOR_CHECKPOINT_INTERVAL": ("9", {"archive_alarm_s": 9.0}),
    "ORCHESTRATOR_JOURNAL_MAX": ("500", {"journal_entries_max": 500}),
    "WORKER_CONCURRENCY": ("64", {"worker_concurrency": 64}),
    "WORKER_HEARTBEAT_INTERVAL": ("0.5", {"heartbeat_interval_s": 0.5}),
    "WORKER_HEARTBEAT_TIMEOUT": ("3", {"heartbeat_timeout_s": 3.0}),
    "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": ("0", {"shutdown_timeout_s": 0.0}),
    "ORCHESTRATOR_LEASE_TIMEOUT": ("4", {"lease_s": 4.0}),
    "ORCHESTRATOR_STALE_CLAIM_INTERVAL": ("5", {"sweep_s": 5.0}),
    "ORCHESTRATOR_RECOVERY_TIMEOUT": ("6", {"repair_after_s": 6.0}),
    "ORCHESTRATOR_STALE_RESULT_TIMEOUT": ("8", {"unread_s": 8.0}),
    "UNSERVED_TIMEOUT": ("7", {"unserved_s": 7.0}),
    "DLQ_MAX_LENGTH": ("5", {"letters_max": 5}),
    "DLQ_POLICY": ("all", {"keeps_exhausted": True}),
}
RETRY = {
    "RETRY_MAX_RETRIES": "0",
    "RETRY_INITIAL_DELAY": "0.1",
    "RETRY_MAX_DELAY": "5",
    "RETRY_EXPONENTIAL_BASE": "1.5",
    "RETRY_JITTER": "no",
}
STALE = {
    "STALE_TIMEOUT_INPUT": "1",
    "STALE_TIMEOUT_OUTPUT": "2",
    "STALE_TIMEOUT_CALL_EXTERNAL_SERVICE": "3",
    "STALE_TIMEOUT_LLM_SERVICE": "4",
}
BEAT = "WORKER_HEARTBEAT_INTERVAL"
RETENTION = {
    "RETENTION_COMPLETED_DAYS": "7",
    "RETENTION_FAILED_DAYS": "0.5",
    "RETENTION_CANCELLED_DAYS": "0",
}
NOT_SECONDS = "expected a number of seconds of at least 0.1, got "
NOT_FUNCTIONS = "expected 'all', 'none' or a list such as 'reports:build,my_package.*', got "
NOT_PROGRAMS = "expected 'all', 'none' or a list such as 'git,/usr/bin/convert', got "
NOT_ADDRESSES = "expected 'all', 'none' or a list such as 'localhost,10.1.0.0/16', got "
NOT_POSTGRES = "expected a URL such as postgresql://user@host:5432/runnel, got "
NOT_REDIS = "expected a URL such as redis://host:6379/0, got "


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings({}) == Settings()
    assert read_settings({"REDIS_URL": "", "WORKER_CONCURRENCY": ""}) == Settings()


def test_every_variable_sets_its_field() -> None:
    settings = read_settings(
        {name: text for name, (text, _) in EVERYTHING.items()} | RETRY | STALE | RETENTION
    )

    fields: dict[str, object] = {}
    for _, expected in EVERYTHING.values():
        fields |= expected
    policy = RetryPolicy(
        max_retries=0, initial_delay=0.1, max_delay=5.0, exponential_base=1.5, jitter=False
    )
    fields["retention_days"] = {"COMPLETED": 7.0, "FAILED": 0.5, "CANCELLED": 0.0}
    fields["stale_s"] = {
        "input": 1.0,
        "output": 2.0,
        "call_external_service": 3.0,
        "llm_service": 4.0,
    }
    assert settings == Settings(**fields, retry=policy)  # type: ignore[arg-type]  # a table of all
    assert {line.variable for line in list_settings(read_sourced_settings({}))} == {
        *EVERYTHING,
        *RETRY,
        *STALE,
        *RETENTION,
    }


def test_secret_variables_become_secrets_and_are_masked() -> None:
    reading = read_sourced_settings(
        {"RUNNEL_SECRET_API_KEY": "sk-geheim", "RUNNEL_SECRET_B2": "geheimer"}
    )

    assert reading.settings.secrets == {"api_key": "sk-geheim", "b2": "geheimer"}
    lines = {line.variable: line.value for line in list_settings(reading) if line.is_given}
    assert lines == {"RUNNEL_SECRET_API_KEY": "***", "RUNNEL_SECRET_B2": "***"}


def test_permission_lists_accept_all_and_none() -> None:
    settings = read_settings({"RUNNEL_ALLOW_PYTHON": "all", "RUNNEL_ALLOW_SHELL": "none"})

    assert (settings.allowed_functions, settings.allowed_programs) == (("*",), ())
    assert (Settings().allowed_functions, Settings().allowed_addresses) == (None, ())


def test_any_handler_may_have_a_stale_timeout() -> None:
    reading = read_sourced_settings({"STALE_TIMEOUT_RESIZE": "7"})

    assert reading.settings.stale_s["resize"] == 7.0
    assert reading.settings.stale_s["output"] == 30.0
    line = list_settings(reading)[-1]
    assert (line.variable, line.value, line.source) == ("STALE_TIMEOUT_RESIZE", "7", "environment")
    with pytest.raises(SettingsError, match="STALE_TIMEOUT_RESIZE: expected a number of seconds"):
        read_sourced_settings({"STALE_TIMEOUT_RESIZE": "soon"})


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("WORKER_CONCURRENCY", "0", "expected a whole number of at least 1, got '0'"),
        ("WORKER_CONCURRENCY", "many", "expected a whole number of at least 1, got 'many'"),
        ("WORKER_CONCURRENCY", "\u0661", "expected a whole number of at least 1, got '\u0661'"),
        ("WORKER_HEARTBEAT_INTERVAL", "0", "expected a number of seconds of at least 0.1, got '0'"),
        ("WORKER_HEARTBEAT_INTERVAL", "nan", NOT_SECONDS + "'nan'"),
        ("WORKER_HEARTBEAT_INTERVAL", "inf", NOT_SECONDS + "'inf'"),
        ("RUNNEL_DURABILITY", "disk", "expected 'process' or 'power', got 'disk'"),
        ("RUNNEL_ENV", "production", "expected 'dev', 'test' or 'prod', got 'production'"),
        ("DLQ_POLICY", "none", "expected 'non_retryable' or 'all', got 'none'"),
        ("RETRY_JITTER", "maybe", "expected 'true' or 'false', got 'maybe'"),
        ("RETRY_EXPONENTIAL_BASE", "0.5", "expected a number of at least 1, got '0.5'"),
        ("REDIS_PORT", "0", "expected a whole number from 1 to 65535, got '0'"),
        ("REDIS_PORT", "tcp://1:2", "expected a whole number from 1 to 65535, got 'tcp://1:2'"),
        ("REDIS_STREAM_BLOCK_MS", "0.5", "expected a whole number of at least 10, got '0.5'"),
        (
            "REDIS_HOST",
            " h",
            "expected a printable text without leading or trailing spaces, got ' h'",
        ),
        ("REDIS_PREFIX", "{a}", "expected a text without braces, got '{a}'"),
        ("RUNNEL_ALLOW_PYTHON", "reports", NOT_FUNCTIONS + "'reports'"),
        ("RUNNEL_ALLOW_PYTHON", "a:b,,c:d", NOT_FUNCTIONS + "'a:b,,c:d'"),
        ("RUNNEL_ALLOW_SHELL", "bin/git", NOT_PROGRAMS + "'bin/git'"),
        ("RUNNEL_ALLOW_PRIVATE_ADDRESSES", "10.0.0.1/8", NOT_ADDRESSES + "'10.0.0.1/8'"),
        ("RUNNEL_ALLOW_PRIVATE_ADDRESSES", "true,10.0.0.300", NOT_ADDRESSES + "'true,10.0.0.300'"),
        (
            "RUNNEL_LLM_URL",
            "models",
            "expected a URL such as https://api.openai.com/v1, got 'models'",
        ),
        ("RUNNEL_LLM_API_KEY", "sk", "expected at least 4 characters, got '***'"),
        ("RUNNEL_SECRET_API_KEY", "abc", "expected at least 4 characters, got '***'"),
        ("RETENTION_FAILED_DAYS", "-1", "expected a number of days of at least 0, got '-1'"),
        ("POSTGRES_URL", "mysql://a:geheim@h", NOT_POSTGRES + "'mysql://***@h'"),
        ("REDIS_URL", "localhost", NOT_REDIS + "'localhost'"),
        ("REDIS_URL", "http://:geheim@h", NOT_REDIS + "'http://***@h'"),
        ("REDIS_URL", "redis:geheim@h", NOT_REDIS + "'***@h'"),
        ("REDIS_URL", "h:1?password=geheim", NOT_REDIS + "'h:1?***'"),
        ("REDIS_URL", "redis://:ge/heim@h", NOT_REDIS + "'redis://***@h'"),
    ],
)
def test_a_wrong_value_is_refused_with_the_expected_one(
    variable: str, text: str, sentence: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings({variable: text})

    assert str(raised.value) == f"{variable}: {sentence}"


def test_all_wrong_values_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings({"WORKER_CONCURRENCY": "x", "DLQ_POLICY": "y"})

    assert len(raised.value.problems) == 2


def test_contradicting_settings_are_reported_at_once() -> None:
    beats = {"WORKER_HEARTBEAT_INTERVAL": "2", "WORKER_HEARTBEAT_TIMEOUT": "3"}
    delays = {"RETRY_INITIAL_DELAY": "90"}
    with pytest.raises(SettingsError) as raised:
        read_settings(beats | delays)

    assert raised.value.problems == (
        f"WORKER_HEARTBEAT_TIMEOUT: expected at least 3 times {BEAT} (2), got 3",
        "RETRY_MAX_DELAY: expected at least RETRY_INITIAL_DELAY (90), got 60",
    )


def test_three_heartbeats_per_timeout_are_accepted() -> None:
    settings = read_settings({"WORKER_HEARTBEAT_INTERVAL": "5", "WORKER_HEARTBEAT_TIMEOUT": "15"})

    assert (settings.heartbeat_interval_s, settings.heartbeat_timeout_s) == (5.0, 15.0)


def test_a_shorter_heartbeat_timeout_alone_shortens_the_interval() -> None:
    assert read_settings({"WORKER_HEARTBEAT_TIMEOUT": "4.5"}).heartbeat_interval_s == 1.0
    assert read_settings({"WORKER_HEARTBEAT_TIMEOUT": "60"}).heartbeat_interval_s == 2.0


def test_a_variable_overrides_the_default_of_the_environment() -> None:
    settings = read_settings({"RUNNEL_ENV": "test", "RUNNEL_LOG_LEVEL": "debug"})

    assert (settings.log_level, settings.lease_s) == ("debug", 3.0)


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, "redis://localhost:6379/0"),
        ({"REDIS_HOST": "h", "REDIS_PORT": "1", "REDIS_DB": "2"}, "redis://h:1/2"),
        ({"REDIS_HOST": "::1"}, "redis://[::1]:6379/0"),
        ({"REDIS_PASSWORD": "a/b"}, "redis://:a%2Fb@localhost:6379/0"),
        ({"REDIS_USERNAME": "u", "REDIS_PASSWORD": "p"}, "redis://u:p@localhost:6379/0"),
        ({"REDIS_URL": "redis://x/5", "REDIS_HOST": "h", "REDIS_PORT": "1"}, "redis://x/5"),
    ],
)
def test_the_redis_url_overrides_host_and_port(environ: dict[str, str], address: str) -> None:
    assert build_redis_url(read_settings(environ)) == address


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({"POSTGRES_HOST": "h"}, "postgresql://h:5432/runnel"),
        (
            {"POSTGRES_HOST": "h", "POSTGRES_USER": "u", "POSTGRES_PASSWORD": "a@b"},
            "postgresql://u:a%40b@h:5432/runnel",
        ),
        ({"POSTGRES_URL": "postgresql://x/d", "POSTGRES_HOST": "h"}, "postgresql://x/d"),
    ],
)
def test_the_postgres_url_overrides_host_and_port(environ: dict[str, str], address: str) -> None:
    assert build_postgres_url(read_settings(environ)) == address


def test_in_production_redis_must_be_set() -> None:
    with pytest.raises(InputError) as raised:
        build_redis_url(read_settings({"RUNNEL_ENV": "prod"}))

    assert "expected the URL of a Redis server (or REDIS_HOST and so on)" in str(raised.value)


@pytest.mark.parametrize(
    "environ",
    [
        {"REDIS_PASSWORD": "ge/heim"},
        {"POSTGRES_HOST": "h", "POSTGRES_PASSWORD": "ge/heim"},
        {"POSTGRES_URL": "postgresql://ada:ge%2Fheim@h/d"},
        {"REDIS_URL": "redis://ada:ge%2Fheim@h/0"},
    ],
)
def test_no_secret_is_shown(environ: dict[str, str]) -> None:
    reading = read_sourced_settings(environ)

    addresses = [
        build_redis_display_url(reading.settings),
        build_postgres_display_url(reading.settings),
    ]
    text = " ".join([*addresses, *(line.value for line in list_settings(reading))])
    assert "heim" not in text
    assert "***" in text
    assert "ge/heim" in list_connection_secrets(reading.settings)


def test_a_value_is_shown_with_its_source() -> None:
    lines = {
        line.variable: (line.value, line.source)
        for line in list_settings(
            read_sourced_settings({"RUNNEL_ENV": "prod", "REDIS_STREAM_BLOCK_MS": "250"})
        )
    }

    assert lines["REDIS_STREAM_BLOCK_MS"] == ("250", "environment")
    assert lines["RUNNEL_LOG_FORMAT"] == ("json", "RUNNEL_ENV=prod")
    assert lines["WORKER_CONCURRENCY"] == ("4", "default")


def test_a_misspelled_variable_is_reported_and_unrelated_ones_are_not() -> None:
    environ = {"REDIS_PROT": "1", "REDIS_PORT_6379_TCP": "x", "WORKER_CONCURENCY": "4", "HOME": "/"}

    assert find_misspelled_variables(environ) == [
        "REDIS_PROT is not a setting; did you mean REDIS_PORT?",
        "WORKER_CONCURENCY is not a setting; did you mean WORKER_CONCURRENCY?",
    ]
