"""Reads the environment: every mistake at once, and where each value came from."""

import difflib
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from runnel.errors import InputError
from runnel.settings.model import ENVIRONMENTS, Environment, Settings, derived, misfits
from runnel.settings.variables import VARIABLES

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
    for name, variable in VARIABLES.items():
        text = found.get(name, "")
        if text:
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
        if name.startswith(PREFIXES) and name not in VARIABLES:
            close = difflib.get_close_matches(name, VARIABLES, n=1, cutoff=LIKENESS_MIN)
            if close:
                sentences.append(f"{name} is not a setting; did you mean {close[0]}?")
    return sentences


def _settings(given: Mapping[str, object]) -> Settings:
    environment: Any = given.get(ENVIRONMENT, Settings().environment)
    values: dict[str, Any] = dict(ENVIRONMENTS[_known(environment)])
    parts: dict[str, dict[str, Any]] = {}
    for name, value in given.items():
        holder, _, field = VARIABLES[name].field.rpartition(".")
        (parts.setdefault(holder, {}) if holder else values)[field] = value
    for holder, changes in parts.items():
        values[holder] = msgspec.structs.replace(getattr(Settings(), holder), **changes)
    fields = frozenset(VARIABLES[name].field for name in given)
    settings = Settings(**(values | derived(values, fields)))
    problems = list(misfits(settings))
    if problems:
        raise SettingsError(problems)
    return settings


def _known(environment: Any) -> Environment:
    """Parsed already: this only tells the type checker so."""
    known: Environment = environment
    return known
