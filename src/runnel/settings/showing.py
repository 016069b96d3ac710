"""The settings for a person: every variable, its value without secrets, and its source."""

from functools import reduce

import msgspec

from runnel.settings.model import ENVIRONMENTS
from runnel.settings.reading import ENVIRONMENT, Reading
from runnel.settings.variables import VARIABLES


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    variable: str
    value: str
    source: str
    is_given: bool


def shown(reading: Reading) -> list[Shown]:
    return [_shown(reading, name) for name in VARIABLES]


def _shown(reading: Reading, name: str) -> Shown:
    variable = VARIABLES[name]
    value: object = reduce(getattr, variable.field.split("."), reading.settings)
    return Shown(
        variable=name,
        value=variable.show(value),
        source=_source(reading, name),
        is_given=name in reading.given,
    )


def _source(reading: Reading, name: str) -> str:
    if name in reading.given:
        return "environment"
    environment = reading.settings.environment
    differs = VARIABLES[name].field in ENVIRONMENTS[environment]
    return f"{ENVIRONMENT}={environment}" if differs else "default"
