"""Tables of the keys of workflows and nodes in workflow files, and the readers of their values."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.input_schema import find_schema_problems
from runnel.core.message_text import describe_value, escape_unprintable, quote_name, suggest_name
from runnel.core.run_when import RunWhen, WhenNotMet
from runnel.core.templates.errors import TemplateSyntaxError
from runnel.core.templates.template import compile_expression
from runnel.core.validation.checks import (
    CACHE_CHECKS,
    LABEL,
    NAME,
    NODE_CHECKS,
    RATE_LIMIT_CHECKS,
    RETRY_CHECKS,
    WORKFLOW_CHECKS,
    ValueCheck,
    is_finite_number,
)
from runnel.core.values import Json
from runnel.core.workflow import Cache, OnFailure, RateLimit

# A place in a document, and the list of problems.

PROBLEMS_MAX = 100


class TooManyProblemsError(Exception):
    """Stops the reading of a document with more than PROBLEMS_MAX problems."""


class DocumentPath:
    """A place in a document, such as `nodes[2].retry`; collects the problems of the document.

    `prefix` is the chain of files that leads to the document. All places in a document and in its
    child documents share the list `problems`.
    """

    __slots__ = ("_prefix", "path", "problems")

    def __init__(
        self, path: str = "", *, prefix: str = "", problems: list[str] | None = None
    ) -> None:
        self.path = path
        self.problems: list[str] = [] if problems is None else problems
        self._prefix = prefix

    def key(self, name: str) -> "DocumentPath":
        step = name if name.isidentifier() else f"[{describe_value(name)}]"
        joint = "." if self.path and step is name else ""
        return DocumentPath(
            f"{self.path}{joint}{step}", prefix=self._prefix, problems=self.problems
        )

    def item(self, index: int) -> "DocumentPath":
        return DocumentPath(f"{self.path}[{index}]", prefix=self._prefix, problems=self.problems)

    def file(self, name: str) -> "DocumentPath":
        """Returns the root of a child document, whose file this place names."""
        return DocumentPath(prefix=f"{self._prefix}{self.path} → {name}: ", problems=self.problems)

    def expected(self, expectation: str, got: Json) -> None:
        self.refuse(f"expected {expectation}, got {describe_value(got)}")

    def refuse(self, problem: str) -> None:
        """Adds a problem; raises TooManyProblemsError if there are PROBLEMS_MAX problems."""
        if len(self.problems) >= PROBLEMS_MAX:
            more = f"there are more than {PROBLEMS_MAX} problems; fix these first"
            self.problems.append(more)
            raise TooManyProblemsError
        path = f"{self.path}: " if self.path else ""
        self.problems.append(escape_unprintable(f"{self._prefix}{path}{problem}"))


class InvalidValue:
    """The type of INVALID_VALUE, which a reader returns after it has reported a problem."""


INVALID_VALUE = InvalidValue()

# The result is Any, because each field has its own type. The constructors of the models are typed.
FieldReader: TypeAlias = Callable[[Json, DocumentPath], Any]


class DocumentField(msgspec.Struct, frozen=True):
    """One key of an object. `read` checks its value; `alias` is a second name of the key."""

    read: FieldReader
    alias: str | None = None
    is_required: bool = False


class FieldTable:
    """The keys that one kind of object may have.

    `expectation` describes the object in messages: "expected {expectation}, got a list".
    """

    def __init__(self, expectation: str, fields: Mapping[str, DocumentField]) -> None:
        self.expectation = expectation
        self.fields = fields
        self.names = {name: name for name in fields}
        self.names |= {field.alias: name for name, field in fields.items() if field.alias}
        self._required = [name for name, field in fields.items() if field.is_required]

    def read(self, value: Json, place: DocumentPath) -> dict[str, Any]:
        """Returns the valid values by field name, and reports problems; null counts as absent."""
        if not isinstance(value, dict):
            place.expected(self.expectation, value)
            return {}
        keys_by_name: dict[str, str] = {}
        values: dict[str, Any] = {}
        for key, item in value.items():
            name = self.names.get(key)
            if name is None:
                hint = suggest_name(key, self.fields) or f"; known keys: {', '.join(self.fields)}"
                place.refuse(f"unknown key {quote_name(key)}{hint}")
            elif name in keys_by_name:
                place.refuse(f"'{keys_by_name[name]}' and '{key}' mean the same; keep one of them")
            else:
                keys_by_name[name] = key
                self._read_field(values, name, item, place.key(key))
        for name in self._required:
            if name not in keys_by_name:
                place.refuse(f"the key '{name}' is missing")
        return values

    def _read_field(
        self, values: dict[str, Any], name: str, item: Json, place: DocumentPath
    ) -> None:
        field = self.fields[name]
        if item is None and not field.is_required:
            return
        result = field.read(item, place)
        if result is not INVALID_VALUE:
            values[name] = result


class CheckedReader(msgspec.Struct, frozen=True):
    """Reads a value that must pass one check; with `is_number`, converts the value to float."""

    check: ValueCheck
    is_number: bool = False

    def __call__(self, value: Json, place: DocumentPath) -> Any:
        if self.check.fits(value):
            return float(value) if self.is_number else value
        place.expected(self.check.expected, value)
        return INVALID_VALUE


def make_reader(check: ValueCheck) -> CheckedReader:
    return CheckedReader(check)


def make_number_reader(check: ValueCheck) -> CheckedReader:
    """Returns a reader that converts numbers to float, so that 30 and 30.0 are equal."""
    return CheckedReader(check, is_number=True)


def drop_defaults(kind: type[msgspec.Struct], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values that differ from their defaults.

    So a workflow that states a default has the same hash as a workflow that leaves it out.
    """
    defaults = _collect_defaults(kind)
    return {name: value for name, value in values.items() if value != defaults[name]}


@cache
def _collect_defaults(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    return {field.name: _get_default(field) for field in msgspec.structs.fields(kind)}


def _get_default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is msgspec.NODEFAULT:
        return field.default
    return field.default_factory()


def format_list_expression(items: list[Json], place: DocumentPath) -> str | InvalidValue:
    """Returns a list as an expression; INVALID_VALUE if it has templates or is too long."""
    source = format_literal(items)
    if "{{" in source:
        place.refuse("a list can't contain templates; write one expression: '[a.x, b.y]'")
        return INVALID_VALUE
    try:
        compile_expression(source, where=place.path)
    except TemplateSyntaxError:
        place.refuse(
            "the list is too long; let a node return it, or pass it as input and write "
            "'input.items'"
        )
        return INVALID_VALUE
    return source


def format_literal(value: Json) -> str:
    """Returns a value as an expression. The function is recursive; callers limit the depth."""
    if value is None:
        return "none"
    if isinstance(value, list):
        return f"[{', '.join(map(format_literal, value))}]"
    if isinstance(value, dict):
        pairs = (f"{format_literal(key)}: {format_literal(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    return json.dumps(value, ensure_ascii=False)


# The keys of a node.

OBJECT_CHECK = ValueCheck("an object", lambda value: isinstance(value, dict), {"type": "object"})


def read_names(value: Json, place: DocumentPath) -> tuple[str, ...]:
    """Returns a list of names, or a single name; reports invalid names and leaves them out."""
    if not isinstance(value, str | list):
        place.expected("a list of names", value)
        return ()
    names = [value] if isinstance(value, str) else value
    for index, name in enumerate(names):
        if not NAME.fits(name):
            place.item(index).expected(NAME.expected, name)
    return tuple(name for name in names if NAME.fits(name))


RETRY_TABLE = FieldTable(
    "an object, a number of retries, or false",
    {
        "max_retries": DocumentField(make_reader(RETRY_CHECKS["max_retries"])),
        "initial_delay": DocumentField(make_number_reader(RETRY_CHECKS["initial_delay"])),
        "max_delay": DocumentField(make_number_reader(RETRY_CHECKS["max_delay"])),
        "exponential_base": DocumentField(make_number_reader(RETRY_CHECKS["exponential_base"])),
        "jitter": DocumentField(make_reader(RETRY_CHECKS["jitter"])),
        "retry_on": DocumentField(read_names),
        "no_retry_on": DocumentField(read_names),
    },
)


def _read_retry(value: Json, place: DocumentPath) -> Mapping[str, Any]:
    """Returns the retry settings of the node; the caller adds them to its default policy."""
    if value is False:
        return {"max_retries": 0}
    if isinstance(value, int) and value is not True:
        return {"max_retries": make_reader(RETRY_CHECKS["max_retries"])(value, place)}
    return RETRY_TABLE.read(value, place)


def _read_condition(value: Json, place: DocumentPath) -> Any:
    check = NODE_CHECKS["condition"]
    return describe_value(value) if isinstance(value, bool) else make_reader(check)(value, place)


def _read_for_each(value: Json, place: DocumentPath) -> str | InvalidValue:
    if isinstance(value, dict):
        items: str | InvalidValue = FOR_EACH_TABLE.read(value, place).get("items", INVALID_VALUE)
        return items
    return _read_items(value, place)


def _read_items(value: Json, place: DocumentPath) -> str | InvalidValue:
    if isinstance(value, list):
        return format_list_expression(value, place)
    if not NODE_CHECKS["for_each"].fits(value):
        place.expected("a list, an expression, or an object with 'items'", value)
        return INVALID_VALUE
    return str(value)


FOR_EACH_TABLE = FieldTable("an object", {"items": DocumentField(_read_items, is_required=True)})


def _read_run_when(value: Json, place: DocumentPath) -> RunWhen | InvalidValue:
    checked = make_reader(NODE_CHECKS["run_when"])(value, place)
    return INVALID_VALUE if checked is INVALID_VALUE else RunWhen(checked)


def _read_when_not_met(value: Json, place: DocumentPath) -> WhenNotMet | InvalidValue:
    checked = make_reader(NODE_CHECKS["when_not_met"])(value, place)
    return INVALID_VALUE if checked is INVALID_VALUE else WhenNotMet(checked)


CACHE_TABLE = FieldTable(
    "true, or an object with 'key' or 'ttl_seconds'",
    {
        "key": DocumentField(make_reader(CACHE_CHECKS["key"])),
        "ttl_seconds": DocumentField(make_number_reader(CACHE_CHECKS["ttl_seconds"]), alias="ttl"),
    },
)


def _read_cache(value: Json, place: DocumentPath) -> Cache | None:
    if isinstance(value, bool):
        return Cache() if value else None
    return Cache(**CACHE_TABLE.read(value, place))


def _make_node_reader(field: str) -> CheckedReader:
    return make_reader(NODE_CHECKS[field])


NODE_TABLE = FieldTable(
    "an object with 'id' and 'handler'",
    {
        "id": DocumentField(make_reader(NAME), alias="node_id", is_required=True),
        "handler": DocumentField(_make_node_reader("handler"), is_required=True),
        "config": DocumentField(make_reader(OBJECT_CHECK)),
        "dependencies": DocumentField(read_names, alias="depends_on"),
        "condition": DocumentField(_read_condition),
        "run_when": DocumentField(_read_run_when),
        "when_not_met": DocumentField(_read_when_not_met),
        "retry": DocumentField(_read_retry, alias="retry_config"),
        "timeout_seconds": DocumentField(make_number_reader(NODE_CHECKS["timeout_seconds"])),
        "soft_timeout_seconds": DocumentField(
            make_number_reader(NODE_CHECKS["soft_timeout_seconds"])
        ),
        "resource_tag": DocumentField(_make_node_reader("resource_tag")),
        "concurrency_key": DocumentField(_make_node_reader("concurrency_key")),
        "concurrency_limit": DocumentField(_make_node_reader("concurrency_limit")),
        "for_each": DocumentField(_read_for_each),
        "queue": DocumentField(_make_node_reader("queue")),
        "cache": DocumentField(_read_cache),
    },
)


# The keys of a workflow. Another module reads the nodes.


def _read_input(value: Json, place: DocumentPath) -> Any:
    if not isinstance(value, dict):
        place.expected("a JSON Schema, which is an object", value)
        return INVALID_VALUE
    for problem in find_schema_problems(value):
        place.refuse(problem)
    return value


def _read_on_failure(value: Json, place: DocumentPath) -> OnFailure | InvalidValue:
    checked = make_reader(WORKFLOW_CHECKS["on_failure"])(value, place)
    return INVALID_VALUE if checked is INVALID_VALUE else OnFailure(checked)


def _read_labels(value: Json, place: DocumentPath) -> dict[str, str]:
    labels: dict[str, str] = {}
    for key, label in _read_entries(value, place, "an object of labels"):
        if isinstance(label, str) or is_finite_number(label):
            labels[key] = str(label)
        else:
            place.key(key).expected(LABEL.expected, label)
    return labels


RATE_LIMIT_TABLE = FieldTable(
    "an object with 'rate_per_second' and 'burst'",
    {
        "rate_per_second": DocumentField(make_number_reader(RATE_LIMIT_CHECKS["rate_per_second"])),
        "burst": DocumentField(make_reader(RATE_LIMIT_CHECKS["burst"])),
    },
)


def _read_rate_limits(value: Json, place: DocumentPath) -> dict[str, RateLimit]:
    limits: dict[str, RateLimit] = {}
    for tag, limit in _read_entries(value, place, "an object of limits by resource tag"):
        fields = RATE_LIMIT_TABLE.read(limit, place.key(tag))
        limits[tag] = RateLimit(**drop_defaults(RateLimit, fields))
    return limits


def _read_entries(value: Json, place: DocumentPath, expectation: str) -> list[tuple[str, Json]]:
    if not isinstance(value, dict):
        place.expected(expectation, value)
        return []
    for key in value:
        if not NAME.fits(key):
            place.refuse(f"the key {quote_name(key)}: expected {NAME.expected}")
    return list(value.items())


def _read_version(value: Json, place: DocumentPath) -> InvalidValue:
    """Checks the key `version` and drops it: the engine numbers versions by content."""
    if not isinstance(value, str) and not is_finite_number(value):
        place.expected("a text or a number", value)
    return INVALID_VALUE


WORKFLOW_TABLE = FieldTable(
    "an object with 'name' and 'nodes'",
    {
        "name": DocumentField(make_reader(NAME), is_required=True),
        "version": DocumentField(_read_version),
        "nodes": DocumentField(lambda value, _: value, is_required=True),
        "input": DocumentField(_read_input),
        "on_failure": DocumentField(_read_on_failure),
        "timeout_seconds": DocumentField(make_number_reader(WORKFLOW_CHECKS["timeout_seconds"])),
        "sla_seconds": DocumentField(make_number_reader(WORKFLOW_CHECKS["sla_seconds"])),
        "max_concurrency": DocumentField(make_reader(WORKFLOW_CHECKS["max_concurrency"])),
        "priority": DocumentField(make_reader(WORKFLOW_CHECKS["priority"])),
        "rate_limits": DocumentField(_read_rate_limits),
        "labels": DocumentField(_read_labels),
        "output": DocumentField(lambda value, _: value),
    },
)
