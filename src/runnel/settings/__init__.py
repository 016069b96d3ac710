"""Settings: read from the environment once, checked at start with a sentence per mistake."""

import difflib
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
    derived,
    misfits,
)
from runnel.settings.variables import VARIABLES, Variable, variable_of

# Reads the environment: every mistake at once, and where each value came from.

ENVIRONMENT = "RUNNEL_ENV"
PREFIXES = tuple(sorted({name.partition("_")[0] + "_" for name in VARIABLES}))
LIKENESS_MIN = 0.85


class SettingsError(InputError):
    code = "bad_settings"

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Reading(msgspec.Struct, frozen=True):
    """`given` are the variables that the environment sets."""

    settings: Settings
    given: frozenset[str]


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Raises SettingsError that lists every mistake."""
    return read(environ).settings


def read(environ: Mapping[str, str] | None = None) -> Reading:
    """As `read_settings`, with where each value came from; an empty text counts as not given."""
    found = os.environ if environ is None else environ
    given: dict[str, object] = {}
    problems: list[str] = []
    others = sorted(found.keys() - VARIABLES.keys())
    for name in (*VARIABLES, *others):
        text, variable = found.get(name, ""), variable_of(name)
        if text and variable is not None:
            try:
                given[name] = variable.parse(text)
            except ValueError as error:
                problems.append(f"{name}: expected {error}, got '{variable.hide(text)}'")
    if problems:
        raise SettingsError(problems)
    return Reading(_settings(given), frozenset(given))


def adjusted(settings: Settings, **changes: object) -> Settings:
    """With what the command line says; None means that it says nothing."""
    said = {field: value for field, value in changes.items() if value is not None}
    return msgspec.structs.replace(settings, **said)


def look_alikes(environ: Mapping[str, str] | None = None) -> list[str]:
    """One sentence for each variable whose name is almost that of a setting: most likely a slip."""
    found = os.environ if environ is None else environ
    sentences = []
    for name in sorted(found):
        if name.startswith(PREFIXES) and variable_of(name) is None:
            close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=LIKENESS_MIN)
            if close:
                sentences.append(f"{name} is not a setting; did you mean {close[0]}?")
    return sentences


def _settings(given: Mapping[str, object]) -> Settings:
    environment: Any = given.get(ENVIRONMENT, Settings().environment)
    values: dict[str, Any] = dict(ENVIRONMENTS[_known(environment)])
    parts: dict[str, dict[str, Any]] = {}
    fields = {name: _field(name) for name in given}
    for name, value in given.items():
        holder, _, field = fields[name].rpartition(".")
        (parts.setdefault(holder, {}) if holder else values)[field] = value
    for holder, changes in parts.items():
        values[holder] = _with(getattr(Settings(), holder), changes)
    settings = Settings(**(values | derived(values, frozenset(fields.values()))))
    problems = list(misfits(settings))
    if problems:
        raise SettingsError(problems)
    return settings


def _field(name: str) -> str:
    variable = variable_of(name)
    return "" if variable is None else variable.field


def _with(part: Any, changes: dict[str, Any]) -> Any:
    """A part of the settings is a struct, or values by name."""
    if isinstance(part, msgspec.Struct):
        return msgspec.structs.replace(part, **changes)
    return {**part, **changes}


def _known(environment: Any) -> Environment:
    """Parsed already: this only tells the type checker so."""
    known: Environment = environment
    return known


# The settings for a person: every variable, its value without secrets, and its source.


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    variable: str
    value: str
    source: str
    is_given: bool


def shown(reading: Reading) -> list[Shown]:
    """Those of the table, then what else was given."""
    others = sorted(reading.given - VARIABLES.keys())
    found = [(name, variable_of(name)) for name in (*VARIABLES, *others)]
    return [_shown(reading, name, variable) for name, variable in found if variable is not None]


def _shown(reading: Reading, name: str, variable: Variable) -> Shown:
    value: object = reading.settings
    for part in variable.field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return Shown(
        variable=name,
        value=variable.show(value),
        source=_source(reading, name, variable.field),
        is_given=name in reading.given,
    )


def _source(reading: Reading, name: str, field: str) -> str:
    if name in reading.given:
        return "environment"
    environment = reading.settings.environment
    differs = field in ENVIRONMENTS[environment]
    return f"{ENVIRONMENT}={environment}" if differs else "default"


__all__ = [
    "VARIABLES",
    "Durability",
    "Environment",
    "LogFormat",
    "LogLevel",
    "Reading",
    "Settings",
    "SettingsError",
    "Shown",
    "Variable",
    "adjusted",
    "look_alikes",
    "read",
    "read_settings",
    "shown",
]
