"""Reads the settings of a process from environment variables, and checks them."""

import difflib
import functools
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from runnel.errors import InputError
from runnel.settings.model import (
    ENVIRONMENTS,
    Durability,
    Environment,
    LogFormat,
    LogLevel,
    Settings,
    derive_heartbeat_interval,
    find_conflicting_settings,
)
from runnel.settings.variables import VARIABLES, Variable, find_variable

ENVIRONMENT_VARIABLE = "RUNNEL_ENV"
VARIABLE_PREFIXES = tuple(sorted({name.partition("_")[0] + "_" for name in VARIABLES}))
SIMILARITY_MIN = 0.85


class SettingsError(InputError):
    """Environment variables are invalid; `problems` has one sentence per variable."""

    code = "bad_settings"

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class SourcedSettings(msgspec.Struct, frozen=True):
    """The settings, and the names of the environment variables that are set."""

    settings: Settings
    set_variables: frozenset[str]


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Reads the settings from environment variables; raises SettingsError with every problem.

    As long as no variable changes, returns the same settings.
    """
    variables = os.environ if environ is None else environ
    return _read_settings(frozenset(variables.items()))


# A program calls `runnel.run` with the same environment again and again.
@functools.lru_cache(maxsize=4)
def _read_settings(variables: frozenset[tuple[str, str]]) -> Settings:
    return read_sourced_settings(dict(variables)).settings


def read_sourced_settings(environ: Mapping[str, str] | None = None) -> SourcedSettings:
    """Reads the settings, and which environment variables are set; raises SettingsError.

    An empty variable counts as not set.
    """
    variables = os.environ if environ is None else environ
    parsed: dict[str, object] = {}
    problems: list[str] = []
    unlisted = sorted(variables.keys() - VARIABLES.keys())
    for name in (*VARIABLES, *unlisted):
        text, variable = variables.get(name, ""), find_variable(name)
        if text and variable is not None:
            try:
                parsed[name] = variable.parse(text)
            except ValueError as error:
                problems.append(f"{name}: expected {error}, got '{variable.hide(text)}'")
    if problems:
        raise SettingsError(problems)
    return SourcedSettings(_build_settings(parsed), frozenset(parsed))


def override_settings(settings: Settings, **changes: object) -> Settings:
    """Returns the settings with the options of the command line; None leaves a field as it is."""
    given = {field: value for field, value in changes.items() if value is not None}
    return msgspec.structs.replace(settings, **given)


def find_misspelled_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Returns a sentence for each variable whose name resembles that of a setting."""
    variables = os.environ if environ is None else environ
    sentences = []
    for name in sorted(variables):
        if name.startswith(VARIABLE_PREFIXES) and find_variable(name) is None:
            close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=SIMILARITY_MIN)
            if close:
                sentences.append(f"{name} is not a setting; did you mean {close[0]}?")
    return sentences


def _build_settings(parsed: Mapping[str, object]) -> Settings:
    environment: Any = parsed.get(ENVIRONMENT_VARIABLE, Settings().environment)
    values: dict[str, Any] = dict(ENVIRONMENTS[_as_environment(environment)])
    parts: dict[str, dict[str, Any]] = {}
    fields = {name: _get_field(name) for name in parsed}
    for name, value in parsed.items():
        holder, _, field = fields[name].rpartition(".")
        (parts.setdefault(holder, {}) if holder else values)[field] = value
    for holder, changes in parts.items():
        values[holder] = _apply_changes(getattr(Settings(), holder), changes)
    settings = Settings(**(values | derive_heartbeat_interval(values, frozenset(fields.values()))))
    problems = list(find_conflicting_settings(settings))
    if problems:
        raise SettingsError(problems)
    return settings


def _get_field(name: str) -> str:
    variable = find_variable(name)
    return "" if variable is None else variable.field


def _apply_changes(part: Any, changes: dict[str, Any]) -> Any:
    """Returns a changed copy of a nested setting, which is a struct or a mapping."""
    if isinstance(part, msgspec.Struct):
        return msgspec.structs.replace(part, **changes)
    return {**part, **changes}


def _as_environment(environment: Any) -> Environment:
    """Returns the parsed value with a narrower type, for the type checker."""
    known: Environment = environment
    return known


# The output of `runnel config`: every variable with its source and its value, secrets masked.


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `runnel config`; `is_given` is True if the environment sets the variable."""

    variable: str
    value: str
    source: str
    is_given: bool


def list_settings(sourced: SourcedSettings) -> list[SettingRow]:
    """Returns one row per variable: all of VARIABLES, then other variables that are set."""
    unlisted = sorted(sourced.set_variables - VARIABLES.keys())
    variables = [(name, find_variable(name)) for name in (*VARIABLES, *unlisted)]
    return [
        _build_row(sourced, name, variable) for name, variable in variables if variable is not None
    ]


def _build_row(sourced: SourcedSettings, name: str, variable: Variable) -> SettingRow:
    value: object = sourced.settings
    for part in variable.field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return SettingRow(
        variable=name,
        value=variable.show(value),
        source=_describe_source(sourced, name, variable.field),
        is_given=name in sourced.set_variables,
    )


def _describe_source(sourced: SourcedSettings, name: str, field: str) -> str:
    if name in sourced.set_variables:
        return "environment"
    environment = sourced.settings.environment
    differs = field in ENVIRONMENTS[environment]
    return f"{ENVIRONMENT_VARIABLE}={environment}" if differs else "default"


__all__ = [
    "VARIABLES",
    "Durability",
    "Environment",
    "LogFormat",
    "LogLevel",
    "SettingRow",
    "Settings",
    "SettingsError",
    "SourcedSettings",
    "Variable",
    "find_misspelled_variables",
    "list_settings",
    "override_settings",
    "read_settings",
    "read_sourced_settings",
]
