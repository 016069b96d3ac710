"""Settings: read from the environment once, checked at start with a sentence per mistake."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from runnel.errors import InputError

Durability: TypeAlias = Literal["process", "power"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every field is named after its environment variable, in `VARIABLES`."""

    data_dir: Path = Path(".runnel")
    durability: Durability = "process"
    worker_concurrency: int = 4
    heartbeat_interval_s: float = 5.0
    shutdown_timeout_s: float = 30.0
    lease_s: float = 10.0
    losses_max: int = 10
    keeps_exhausted: bool = False
    cached_executions_max: int = 5_000


class SettingsError(InputError):
    code = "bad_settings"

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Raises SettingsError that lists every mistake."""
    values: dict[str, object] = {}
    problems: list[str] = []
    found = os.environ if environ is None else environ
    for variable, (field, parse) in VARIABLES.items():
        text = found.get(variable)
        if text is None or text == "":
            continue
        try:
            values[field] = parse(text)
        except ValueError as error:
            problems.append(f"{variable}: expected {error}, got '{text}'")
    if problems:
        raise SettingsError(problems)
    return msgspec.convert(values, Settings)


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ValueError(f"a whole number of at least {least}")
        return int(text)

    return parse


def _seconds(least: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        problem = f"a number of seconds of at least {least:g}"
        try:
            value = float(text)
        except ValueError:
            raise ValueError(problem) from None
        if not least <= value < float("inf"):
            raise ValueError(problem)
        return value

    return parse


def _one_of(values: Mapping[str, object]) -> Callable[[str], object]:
    def parse(text: str) -> object:
        if text not in values:
            raise ValueError(" or ".join(f"'{value}'" for value in values))
        return values[text]

    return parse


VARIABLES: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "RUNNEL_DATA_DIR": ("data_dir", Path),
    "RUNNEL_DURABILITY": ("durability", _one_of({"process": "process", "power": "power"})),
    "WORKER_CONCURRENCY": ("worker_concurrency", _whole(1)),
    "WORKER_HEARTBEAT_INTERVAL": ("heartbeat_interval_s", _seconds(0.1)),
    "WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": ("shutdown_timeout_s", _seconds(0)),
    "RUNNEL_CRASH_LOOP_LIMIT": ("losses_max", _whole(1)),
    "RUNNEL_CACHED_EXECUTIONS": ("cached_executions_max", _whole(1)),
    "DLQ_POLICY": ("keeps_exhausted", _one_of({"non_retryable": False, "all": True})),
}
