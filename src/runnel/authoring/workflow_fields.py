"""The keys of a workflow in a document, and what each may hold; its nodes are read apart."""

from typing import Any

from runnel.authoring.fields import WRONG, Field, Table, Wrong, number, plain, without_defaults
from runnel.authoring.place import Place
from runnel.authoring.schema import schema_problems
from runnel.core.checks.values import LABEL, NAME, RATE_LIMIT, WORKFLOW, is_number
from runnel.core.checks.wording import quoted
from runnel.core.json_types import Json
from runnel.core.workflow import OnFailure, RateLimit


def _input(value: Json, place: Place) -> Any:
    if not isinstance(value, dict):
        place.expected("a JSON Schema, which is an object", value)
        return WRONG
    for problem in schema_problems(value):
        place.refuse(problem)
    return value


def _on_failure(value: Json, place: Place) -> OnFailure | Wrong:
    checked = plain(WORKFLOW["on_failure"])(value, place)
    return WRONG if checked is WRONG else OnFailure(checked)


def _labels(value: Json, place: Place) -> dict[str, str]:
    labels: dict[str, str] = {}
    for key, label in _entries(value, place, "an object of labels"):
        if isinstance(label, str) or is_number(label):
            labels[key] = str(label)
        else:
            place.key(key).expected(LABEL.expected, label)
    return labels


RATE_LIMIT_TABLE = Table(
    "an object with 'rate_per_second' and 'burst'",
    {
        "rate_per_second": Field(number(RATE_LIMIT["rate_per_second"])),
        "burst": Field(plain(RATE_LIMIT["burst"])),
    },
)


def _rate_limits(value: Json, place: Place) -> dict[str, RateLimit]:
    limits: dict[str, RateLimit] = {}
    for tag, limit in _entries(value, place, "an object of limits by resource tag"):
        found = RATE_LIMIT_TABLE.read(limit, place.key(tag))
        limits[tag] = RateLimit(**without_defaults(RateLimit, found))
    return limits


def _entries(value: Json, place: Place, what: str) -> list[tuple[str, Json]]:
    if not isinstance(value, dict):
        place.expected(what, value)
        return []
    for key in value:
        if not NAME.fits(key):
            place.refuse(f"the key {quoted(key)}: expected {NAME.expected}")
    return list(value.items())


def _version(value: Json, place: Place) -> Wrong:
    """A label for people: the engine numbers versions itself, by content, so it is not kept."""
    if not isinstance(value, str) and not is_number(value):
        place.expected("a text or a number", value)
    return WRONG


WORKFLOW_TABLE = Table(
    "an object with 'name' and 'nodes'",
    {
        "name": Field(plain(NAME), is_required=True),
        "version": Field(_version),
        "nodes": Field(lambda value, _: value, is_required=True),
        "input": Field(_input),
        "on_failure": Field(_on_failure),
        "timeout_seconds": Field(number(WORKFLOW["timeout_seconds"])),
        "sla_seconds": Field(number(WORKFLOW["sla_seconds"])),
        "max_concurrency": Field(plain(WORKFLOW["max_concurrency"])),
        "rate_limits": Field(_rate_limits),
        "labels": Field(_labels),
        "output": Field(lambda value, _: value),
    },
)
