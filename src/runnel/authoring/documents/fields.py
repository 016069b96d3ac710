"""Reads an object by a table of its keys, and refuses what the table does not have."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.input_schema import schema_problems
from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.template import compile_expression
from runnel.core.validation.checks import (
    CACHE,
    LABEL,
    NAME,
    NODE,
    RATE_LIMIT,
    RETRY,
    WORKFLOW,
    Check,
    is_number,
)
from runnel.core.values import Json
from runnel.core.wording import did_you_mean, printable, quoted, shown
from runnel.core.workflow import Cache, OnFailure, RateLimit, RunWhen

# Where in a document the reader is: each problem goes to one list, with its path before it.

PROBLEMS_MAX = 100


class TooManyProblemsError(Exception):
    """Ends the reading of a document that has little right in it."""


class Place:
    """`nodes[2].retry` and the like; `lead` tells how the reader came to the document."""

    __slots__ = ("_lead", "path", "problems")

    def __init__(
        self, path: str = "", *, lead: str = "", problems: list[str] | None = None
    ) -> None:
        self.path = path
        self.problems: list[str] = [] if problems is None else problems
        self._lead = lead

    def key(self, name: str) -> "Place":
        step = name if name.isidentifier() else f"[{shown(name)}]"
        joint = "." if self.path and step is name else ""
        return Place(f"{self.path}{joint}{step}", lead=self._lead, problems=self.problems)

    def item(self, index: int) -> "Place":
        return Place(f"{self.path}[{index}]", lead=self._lead, problems=self.problems)

    def file(self, name: str) -> "Place":
        """The root of another document, which this place names."""
        return Place(lead=f"{self._lead}{self.path} → {name}: ", problems=self.problems)

    def expected(self, what: str, got: Json) -> None:
        self.refuse(f"expected {what}, got {shown(got)}")

    def refuse(self, problem: str) -> None:
        """Raises TooManyProblemsError when a hundred have been found already."""
        if len(self.problems) >= PROBLEMS_MAX:
            more = f"there are more than these {PROBLEMS_MAX} problems; mend these first"
            self.problems.append(more)
            raise TooManyProblemsError
        path = f"{self.path}: " if self.path else ""
        self.problems.append(printable(f"{self._lead}{path}{problem}"))


class Wrong:
    """What a reader returns after it has refused a value."""


WRONG = Wrong()

# Any, because each field of the model has a type of its own; the model's constructor is typed.
Read: TypeAlias = Callable[[Json, Place], Any]


class Field(msgspec.Struct, frozen=True):
    read: Read
    alias: str | None = None
    is_required: bool = False


class Table:
    """`what` names the object in messages: "expected {what}, got a list"."""

    def __init__(self, what: str, fields: Mapping[str, Field]) -> None:
        self.what = what
        self.fields = fields
        self.names = {name: name for name in fields}
        self.names |= {field.alias: name for name, field in fields.items() if field.alias}
        self._required = [name for name, field in fields.items() if field.is_required]

    def read(self, value: Json, place: Place) -> dict[str, Any]:
        """The good values by the names of the model; null counts as not given."""
        if not isinstance(value, dict):
            place.expected(self.what, value)
            return {}
        spelled: dict[str, str] = {}
        found: dict[str, Any] = {}
        for key, item in value.items():
            name = self.names.get(key)
            if name is None:
                hint = did_you_mean(key, self.fields) or f"; there are: {', '.join(self.fields)}"
                place.refuse(f"unknown key {quoted(key)}{hint}")
            elif name in spelled:
                place.refuse(f"'{spelled[name]}' and '{key}' mean the same; keep one of them")
            else:
                spelled[name] = key
                self._take(found, name, item, place.key(key))
        for name in self._required:
            if name not in spelled:
                place.refuse(f"the key '{name}' is missing")
        return found

    def _take(self, found: dict[str, Any], name: str, item: Json, place: Place) -> None:
        field = self.fields[name]
        if item is None and not field.is_required:
            return
        result = field.read(item, place)
        if result is not WRONG:
            found[name] = result


class Checked(msgspec.Struct, frozen=True):
    """Reads a value that one check judges."""

    check: Check
    is_number: bool = False

    def __call__(self, value: Json, place: Place) -> Any:
        if self.check.fits(value):
            return float(value) if self.is_number else value
        place.expected(self.check.expected, value)
        return WRONG


def plain(check: Check) -> Checked:
    return Checked(check)


def number(check: Check) -> Checked:
    """As a float, because 30 and 30.0 are the same time-out and must give the same workflow."""
    return Checked(check, is_number=True)


def without_defaults(kind: type[msgspec.Struct], found: Mapping[str, Any]) -> dict[str, Any]:
    """A value that equals its default is left out, so that writing it down changes no hash."""
    defaults = _defaults_of(kind)
    return {name: value for name, value in found.items() if value != defaults[name]}


@cache
def _defaults_of(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    return {field.name: _default(field) for field in msgspec.structs.fields(kind)}


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is msgspec.NODEFAULT:
        return field.default
    return field.default_factory()


# A list written out in a document, as the expression that the model keeps.


def as_expression(items: list[Json], place: Place) -> str | Wrong:
    """Refused when it holds a template, or is longer than an expression may be."""
    source = written(items)
    if "{{" in source:
        place.refuse("a template inside a list; write it all as one expression: '[a.x, b.y]'")
        return WRONG
    try:
        compile_expression(source, where=place.path)
    except TemplateSyntaxError:
        place.refuse(
            "a list too long to be written out; let a node return it, or pass it as input and "
            "write 'input.items'"
        )
        return WRONG
    return source


def written(value: Json) -> str:
    """A value as an expression; recursive, but its depth is bounded before it comes here."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        pairs = (f"{written(key)}: {written(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


# The keys of a node in a document, and what each may hold.

OBJECT = Check("an object", lambda value: isinstance(value, dict), {"type": "object"})


def names(value: Json, place: Place) -> tuple[str, ...]:
    """A list of names, or one name alone; those that are none are refused and left out."""
    if not isinstance(value, str | list):
        place.expected("a list of names", value)
        return ()
    found = [value] if isinstance(value, str) else value
    for index, name in enumerate(found):
        if not NAME.fits(name):
            place.item(index).expected(NAME.expected, name)
    return tuple(name for name in found if NAME.fits(name))


RETRY_TABLE = Table(
    "an object, a number of retries, or false",
    {
        "max_retries": Field(plain(RETRY["max_retries"])),
        "initial_delay": Field(number(RETRY["initial_delay"])),
        "max_delay": Field(number(RETRY["max_delay"])),
        "exponential_base": Field(number(RETRY["exponential_base"])),
        "jitter": Field(plain(RETRY["jitter"])),
        "retry_on": Field(names),
        "no_retry_on": Field(names),
    },
)


def _retry(value: Json, place: Place) -> Mapping[str, Any]:
    """Only what is said: the rest of the policy is not known here."""
    if value is False:
        return {"max_retries": 0}
    if isinstance(value, int) and value is not True:
        return {"max_retries": plain(RETRY["max_retries"])(value, place)}
    return RETRY_TABLE.read(value, place)


def _condition(value: Json, place: Place) -> Any:
    check = NODE["condition"]
    return shown(value) if isinstance(value, bool) else plain(check)(value, place)


def _for_each(value: Json, place: Place) -> str | Wrong:
    if isinstance(value, dict):
        items: str | Wrong = FOR_EACH_TABLE.read(value, place).get("items", WRONG)
        return items
    return _items(value, place)


def _items(value: Json, place: Place) -> str | Wrong:
    if isinstance(value, list):
        return as_expression(value, place)
    if not NODE["for_each"].fits(value):
        place.expected("a list, an expression, or an object with 'items'", value)
        return WRONG
    return str(value)


FOR_EACH_TABLE = Table("an object", {"items": Field(_items, is_required=True)})


def _run_when(value: Json, place: Place) -> RunWhen | Wrong:
    checked = plain(NODE["run_when"])(value, place)
    return WRONG if checked is WRONG else RunWhen(checked)


CACHE_TABLE = Table(
    "true, or an object with 'key' or 'ttl_seconds'",
    {
        "key": Field(plain(CACHE["key"])),
        "ttl_seconds": Field(number(CACHE["ttl_seconds"]), alias="ttl"),
    },
)


def _cache(value: Json, place: Place) -> Cache | None:
    if isinstance(value, bool):
        return Cache() if value else None
    return Cache(**CACHE_TABLE.read(value, place))


def _checked(field: str) -> Checked:
    return plain(NODE[field])


NODE_TABLE = Table(
    "an object with 'id' and 'handler'",
    {
        "id": Field(plain(NAME), alias="node_id", is_required=True),
        "handler": Field(_checked("handler"), is_required=True),
        "config": Field(plain(OBJECT)),
        "dependencies": Field(names, alias="depends_on"),
        "condition": Field(_condition),
        "run_when": Field(_run_when),
        "retry": Field(_retry, alias="retry_config"),
        "timeout_seconds": Field(number(NODE["timeout_seconds"])),
        "soft_timeout_seconds": Field(number(NODE["soft_timeout_seconds"])),
        "resource_tag": Field(_checked("resource_tag")),
        "concurrency_key": Field(_checked("concurrency_key")),
        "concurrency_limit": Field(_checked("concurrency_limit")),
        "for_each": Field(_for_each),
        "queue": Field(_checked("queue")),
        "cache": Field(_cache),
    },
)


# The keys of a workflow in a document, and what each may hold; its nodes are read apart.


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
