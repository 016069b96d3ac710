"""The settings for a person: every variable, its value without secrets, and its source."""

from collections.abc import Mapping

import msgspec

from runnel.settings.model import ENVIRONMENTS
from runnel.settings.reading import ENVIRONMENT, Reading
from runnel.settings.variables import VARIABLES, Variable, variable_of


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
