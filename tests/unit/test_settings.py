"""Settings: every mistake is named, with what was expected."""

from pathlib import Path

import pytest

from runnel.settings import Settings, SettingsError, read_settings

NOT_SECONDS = "expected a number of seconds of at least 0.1, got "


def test_an_empty_environment_gives_the_defaults() -> None:
    assert read_settings({}) == Settings()


def test_every_variable_is_taken() -> None:
    found = read_settings(
        {
            "RUNNEL_DATA_DIR": "/tmp/x",
            "RUNNEL_DURABILITY": "power",
            "WORKER_CONCURRENCY": "64",
            "WORKER_HEARTBEAT_INTERVAL": "0.5",
            "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": "0",
            "RUNNEL_CRASH_LOOP_LIMIT": "9",
            "RUNNEL_CACHED_EXECUTIONS": "10",
            "DLQ_POLICY": "all",
        }
    )

    assert found == Settings(
        data_dir=Path("/tmp/x"),
        durability="power",
        worker_concurrency=64,
        heartbeat_interval_s=0.5,
        shutdown_timeout_s=0.0,
        losses_max=9,
        cached_executions_max=10,
        keeps_exhausted=True,
    )


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
        ("DLQ_POLICY", "none", "expected 'non_retryable' or 'all', got 'none'"),
    ],
)
def test_a_mistake_is_named_with_what_was_expected(variable: str, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings({variable: text})

    assert str(raised.value) == f"{variable}: {sentence}"


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(SettingsError) as raised:
        read_settings({"WORKER_CONCURRENCY": "x", "DLQ_POLICY": "y"})

    assert len(raised.value.problems) == 2
