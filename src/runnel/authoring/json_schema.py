"""Checks JSON Schemas, and values against them, with the jsonschema library.

Only `input_schema.py` imports this module, and only when it needs jsonschema. No schema is fetched
from the network: a schema may refer only to its own parts and to the published drafts.
"""

import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from functools import cache, partial
from itertools import islice
from typing import Any

import jsonschema_specifications  # type: ignore[import-untyped]  # it has no py.typed
from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from runnel.authoring.pattern_cost import estimate_cost
from runnel.authoring.schema_keywords import is_surely_schema
from runnel.authoring.text_formats import FORMATS, has_encoding, has_format
from runnel.core.message_text import describe_value, quote_name, shorten
from runnel.core.values import Json, find_repeated_item

MESSAGE_CHARS_MAX = 200
# The most schemas that may describe one value: itself, and those that it reaches by $ref, allOf and
# so on. jsonschema checks each of them in about 50 µs, so a check of `{}` takes at most 100 ms.
SCHEMAS_PER_VALUE_MAX = 1_000
# The most $ref that the check of an input follows, for the whole input and for each value in it. A
# recursive schema may need twice as many for each level of the input.
REFERENCES_MAX = 1_000
REFERENCES_PER_VALUE = 50

# The most errors that are reported for one value. A request of 1 MB can have 500,000 errors.
ERRORS_MAX = 100

_NON_SCHEMA_KEYWORDS = frozenset({"const", "default", "enum", "examples"})
_REGISTRY: Registry[Any] = jsonschema_specifications.REGISTRY


def find_schema_problems(schema: dict[str, Json]) -> list[str]:
    dialect = schema.get("$schema")
    if dialect is not None and not _is_known_dialect(dialect):
        problem = (
            f"the dialect {describe_value(dialect)} is not known; remove it to use draft 2020-12"
        )
        return [f"$schema: {problem}"]
    problems = [] if is_surely_schema(schema) else _find_keyword_problems(schema)
    problems = problems or [*_find_pattern_problems(schema), *_find_reference_problems(schema)]
    problems = problems or list(_find_size_problems(schema))
    return problems or list(_find_default_problems(schema))


def _find_keyword_problems(schema: dict[str, Json]) -> list[str]:
    kind = validator_for(schema, default=Draft202012Validator)
    errors = kind(kind.META_SCHEMA, registry=_REGISTRY).iter_errors(schema)
    leaves = (leaf for error in errors for leaf in _expand_alternatives(error))
    return sorted({_format_error("", leaf) for leaf in islice(leaves, ERRORS_MAX)})


def find_value_problems(schema: dict[str, Json], value: Json, *, where: str) -> list[str]:
    try:
        errors = _list_errors(schema, schema, value)
    except RecursionError:
        return [f"{where}: the schema refers to itself endlessly; correct its $ref"]
    except _TooManyReferencesError:
        return [f"{where}: the check follows too many $ref of the schema; refer to each part once"]
    leaves = (leaf for error in errors for leaf in _expand_alternatives(error))
    return sorted({_format_error(where, leaf) for leaf in islice(leaves, ERRORS_MAX)})


class _TooManyReferencesError(Exception):
    """The check of a value follows more $ref than its size allows."""


_references_left: ContextVar[list[int]] = ContextVar("references_left")


def _list_errors(root: dict[str, Json], part: dict[str, Json], value: Json) -> list[Any]:
    """Returns the errors of a value that a part of a schema describes.

    Raises RecursionError and _TooManyReferencesError.
    """
    kind = _extend_validator(validator_for(root, default=Draft202012Validator))
    values = sum(1 for _ in _iterate_values(value))
    token = _references_left.set([REFERENCES_MAX + REFERENCES_PER_VALUE * values])
    try:
        checker = kind(root, registry=_REGISTRY, format_checker=_build_format_checker())
        return list(islice(checker.evolve(schema=part).iter_errors(value), ERRORS_MAX))
    finally:
        _references_left.reset(token)


@cache
def _extend_validator(kind: Any) -> Any:
    """Returns the validator class, with references that count and encodings that are checked."""
    references = {
        keyword: _limit_keyword(kind.VALIDATORS[keyword])
        for keyword in ("$ref", "$dynamicRef")
        if keyword in kind.VALIDATORS
    }
    own = {"contentEncoding": _find_encoding_errors, "uniqueItems": _find_repeated_items}
    own["pattern"] = _limit_pattern(kind.VALIDATORS["pattern"])
    for keyword in _NAME_PATTERN_KEYWORDS & kind.VALIDATORS.keys():
        own[keyword] = _limit_names(kind.VALIDATORS[keyword])
    return extend(kind, {**references, **own})  # type: ignore[no-untyped-call]  # jsonschema leaves it untyped


def _limit_keyword(check: Any) -> Any:
    def check_within_limit(*arguments: Any) -> Any:
        left = _references_left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooManyReferencesError
        return check(*arguments)

    return check_within_limit


_NAME_PATTERN_KEYWORDS = {"patternProperties", "additionalProperties", "unevaluatedProperties"}


def _limit_pattern(check: Any) -> Any:
    """Refuses a text that is too long for its pattern, see `pattern_cost`."""

    def check_short_text(validator: Any, pattern: str, value: Json, schema: Json) -> Iterator[Any]:
        if isinstance(value, str) and (problem := _find_length_problem(pattern, value)):
            yield _TooLongError(problem)
        else:
            yield from check(validator, pattern, value, schema) or ()

    return check_short_text


def _limit_names(check: Any) -> Any:
    """Refuses an object with a name that is too long for a pattern of the schema."""

    def check_short_names(validator: Any, part: Json, value: Json, schema: Any) -> Iterator[Any]:
        patterns = schema.get("patternProperties", ())
        names = value if patterns and isinstance(value, dict) else ()
        problems = (_find_length_problem(pattern, name) for name in names for pattern in patterns)
        problem = next(filter(None, problems), None)
        if problem is not None:
            yield _TooLongError(f"the name of a field: {problem}")
        else:
            yield from check(validator, part, value, schema) or ()

    return check_short_names


def _find_length_problem(pattern: str, text: str) -> str | None:
    chars_max = estimate_cost(pattern).chars_max
    if chars_max is None or len(text) <= chars_max:
        return None
    return (
        f"expected at most {chars_max:,} characters, because the pattern {quote_name(pattern)} "
        f"takes long for more, got {len(text):,}"
    )


class _TooLongError(ValidationError):
    """A text is too long for its pattern. The message is for users."""


def _iterate_values(value: Json) -> Iterator[Json]:
    """Yields a value and all values inside it."""
    stack = [value]
    while stack:
        item = stack.pop()
        yield item
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


@cache
def _build_format_checker() -> FormatChecker:
    checker = FormatChecker(formats=())
    for name in FORMATS:
        checker.checks(name)(partial(_check_format, name))
    return checker


def _check_format(name: str, value: object) -> bool:
    return not isinstance(value, str) or has_format(value, name)


def _find_encoding_errors(
    _validator: object, encoding: Json, value: Json, _schema: Json
) -> Iterator[ValidationError]:
    if isinstance(value, str) and isinstance(encoding, str) and not has_encoding(value, encoding):
        yield ValidationError(f"{describe_value(value)} is not {encoding}")


def _find_repeated_items(
    _validator: object, is_unique: Json, value: Json, _schema: Json
) -> Iterator[ValidationError]:
    """Takes the place of the library's check, which compares each pair of objects: 2,000 of them
    took 10 s.
    """
    if is_unique is True and isinstance(value, list) and find_repeated_item(value) is not None:
        yield ValidationError("it has equal items")


def _is_known_dialect(dialect: Json) -> bool:
    """Returns True if jsonschema knows the dialect.

    For an unknown dialect, `validator_for` returns its default. So two defaults give two classes.
    """
    if not isinstance(dialect, str):
        return False
    kinds = {
        validator_for({"$schema": dialect}, default=default)
        for default in (Draft7Validator, Draft202012Validator)
    }
    return len(kinds) == 1


def _expand_alternatives(error: ValidationError) -> Iterator[ValidationError]:
    """Yields the errors of the only alternative that the value resembles, otherwise the error.

    A value resembles an alternative of `anyOf` or `oneOf` that it does not fail as a whole: it is
    an object or a list as expected, and only a part of it is wrong.
    """
    by_alternative: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        by_alternative.setdefault(inner.relative_schema_path[0], []).append(inner)
    similar = [inner for inner in by_alternative.values() if not any(map(_is_of_whole, inner))]
    if len(similar) != 1:
        yield error
        return
    for inner_error in similar[0]:
        yield from _expand_alternatives(inner_error)


def _is_of_whole(error: ValidationError) -> bool:
    return not error.relative_path and error.validator in ("type", "const", "enum", None)


def _format_error(where: str, error: ValidationError) -> str:
    message = shorten(_describe_problem(error), MESSAGE_CHARS_MAX)
    path = where + "".join(_format_path_step(step) for step in error.absolute_path)
    return f"{path.removeprefix('.')}: {message}" if path else message


_TYPE_NAMES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}
# The texts of keywords that limit a value. `{limit}` is the keyword's value.
_LIMIT_TEXTS = {
    "minimum": "at least {limit}",
    "maximum": "at most {limit}",
    "exclusiveMinimum": "more than {limit}",
    "exclusiveMaximum": "less than {limit}",
    "multipleOf": "a multiple of {limit}",
    "minLength": "a text of at least {limit} characters",
    "maxLength": "a text of at most {limit} characters",
    "minItems": "a list of at least {limit} items",
    "maxItems": "a list of at most {limit} items",
    "pattern": "a text that matches {limit}",
    "format": "a text in the format {limit}",
    "contentEncoding": "a text encoded as {limit}",
    "const": "{limit}",
    "minProperties": "an object with at least {limit} fields",
    "maxProperties": "an object with at most {limit} fields",
    "minContains": "a list with at least {limit} items that fit",
    "maxContains": "a list with at most {limit} items that fit",
}
_ALTERNATIVES = ("anyOf", "oneOf")
_FALLBACK = "another form"


def _describe_problem(error: ValidationError) -> str:
    """Returns what was expected and what was found."""
    if isinstance(error, _TooLongError):
        return error.message
    keyword = str(error.validator)
    limit: Any = error.validator_value
    found: Any = error.instance
    if keyword == "required":
        missing = [name for name in limit if name not in found]
        # The library reports each missing field on its own, and quotes its name.
        name = next((name for name in missing if error.message.startswith(repr(name))), missing[0])
        return f"the field {quote_name(name)} is missing"
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        return _describe_unknown_fields(error.schema, found)
    if keyword in ("dependentRequired", "dependencies"):
        # The library names the missing field and the field that needs it, in this order.
        match re.findall(r"'([^']*)'", error.message):
            case [missing, needing]:
                needing = quote_name(needing)
                return f"the field {quote_name(missing)} is missing, because {needing} needs it"
    name = " as the name of a field" if "propertyNames" in error.absolute_schema_path else ""
    expected = _describe_expected(keyword, limit, error)
    text = f"expected {expected}{name}, got {_describe_found(keyword, found)}"
    return re.sub(r"\b1 (item|field|character)s\b", r"1 \1", text)


def _describe_found(keyword: str, found: Any) -> str:
    if keyword == "uniqueItems":
        index = find_repeated_item(found) or 0
        return f"{describe_value(found[index])} twice"
    if isinstance(found, list) and keyword != "type":
        return f"a list of {len(found)} items"
    if isinstance(found, dict) and keyword in ("minProperties", "maxProperties"):
        return f"an object with {len(found)} fields"
    return describe_value(found)


def _describe_expected(keyword: str, limit: Any, error: ValidationError) -> str:
    if keyword in _ALTERNATIVES:
        failed = {inner.relative_schema_path[0]: inner for inner in error.context or ()}
        texts = [_describe_option(option, failed.get(n)) for n, option in enumerate(limit)]
        options = " or ".join(dict.fromkeys(texts))
        return options if failed else f"a value that fits only one of: {options}"
    if keyword == "contains":
        return f"a list with {_describe_schema(limit)}"
    if keyword == "not":
        return f"anything but {_describe_schema(limit)}"
    if keyword == "uniqueItems":
        return "a list without equal items"
    if keyword in ("items", "additionalItems", "unevaluatedItems"):
        schema: Any = error.schema
        count = len(schema.get("prefixItems") or ())
        return f"a list of at most {count} items" if count else "an empty list"
    if keyword == "None":  # the schema is `false`
        return "no value here"
    return _describe_schema({keyword: limit})


def _describe_option(option: Any, error: ValidationError | None) -> str:
    """Describes an alternative; one that only refers to another schema by what the value failed."""
    if error is None or not isinstance(option, dict) or "$ref" not in option:
        return _describe_schema(option)
    return _describe_expected(str(error.validator), error.validator_value, error)


def _describe_unknown_fields(schema: Any, found: Any) -> str:
    known = sorted(schema.get("properties", ()))
    patterns = list(schema.get("patternProperties", ()))
    unknown = [
        name
        for name in found
        if name not in known and not any(re.search(pattern, name) for pattern in patterns)
    ]
    names = [*map(quote_name, known), *(f"names that match {quote_name(p)}" for p in patterns)]
    return (
        f"unknown field {', '.join(map(quote_name, unknown))}; expected "
        f"{', '.join(names) or 'no fields'}"
    )


def _describe_schema(schema: Any) -> str:
    """Returns a short text for the values that fit a schema, such as `a whole number or null`."""
    if not isinstance(schema, dict):
        return "any value" if schema else "nothing"
    if "const" in schema:
        return describe_value(schema["const"])
    if "enum" in schema:
        return "one of " + ", ".join(map(describe_value, schema["enum"]))
    if "$ref" in schema:
        return quote_name(str(schema["$ref"]).rpartition("/")[2])
    for keyword in _ALTERNATIVES:
        if keyword in schema:
            return " or ".join(dict.fromkeys(map(_describe_schema, schema[keyword])))
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    kind = " or ".join(_TYPE_NAMES.get(name, str(name)) for name in names)
    limits = [
        text.format(limit=describe_value(schema[keyword]))
        for keyword, text in _LIMIT_TEXTS.items()
        if keyword in schema
    ]
    if limits and limits[0].startswith(kind):
        kind = ""
    return " and ".join([text for text in (kind, *limits) if text]) or _FALLBACK


def _format_path_step(step: str | int) -> str:
    if isinstance(step, str) and step.isidentifier():
        return f".{step}"
    return f"[{step}]" if isinstance(step, int) else f"[{quote_name(step)}]"


def _find_pattern_problems(schema: Json) -> Iterator[str]:
    for part in _iterate_subschemas(schema):
        by_pattern = part.get("patternProperties")
        patterns = [part.get("pattern"), *(by_pattern if isinstance(by_pattern, dict) else ())]
        for pattern in patterns:
            if isinstance(pattern, str) and (problem := _find_pattern_problem(pattern)):
                yield f"the pattern {quote_name(pattern)} {problem}"


def _find_pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    problem = estimate_cost(pattern).problem
    return None if problem is None else f"may take too long: {problem}"


def _find_reference_problems(schema: dict[str, Json]) -> Iterator[str]:
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = _REGISTRY.resolver_with_root(resource)
    for part in _iterate_subschemas(schema):
        reference = part.get("$ref")
        if not isinstance(reference, str) or "$id" in part:
            continue
        try:
            resolver.lookup(reference)
        except (Unresolvable, ValueError):
            yield (
                f"the $ref {quote_name(reference)} can't be resolved; expected a part of this "
                "schema, such as '#/$defs/name'"
            )


def _find_size_problems(schema: dict[str, Json]) -> Iterator[str]:
    """Yields a problem if too many schemas describe one value, or if a part has its own dialect."""
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    counter = _SchemaCounter(_REGISTRY.resolver_with_root(resource))
    for part in _iterate_subschemas(schema):
        if part is not schema and isinstance(part.get("$schema"), str):
            yield "$schema: expected only in the schema itself, not in a part of it"
            return
        try:
            is_too_large = counter.count(part) > SCHEMAS_PER_VALUE_MAX
        except RecursionError:
            is_too_large = True
        if is_too_large:
            yield (
                f"more than {SCHEMAS_PER_VALUE_MAX:,} schemas describe one value, counted by "
                "following $ref, allOf, anyOf and oneOf; refer to each part once"
            )
            return


class _SchemaCounter:
    """Counts the schemas that describe the same value as a schema does, with their repetitions."""

    def __init__(self, resolver: Any) -> None:
        self._resolver = resolver
        self._counts: dict[int, int] = {}

    def count(self, schema: Json) -> int:
        if not isinstance(schema, dict):
            return 1
        known = self._counts.get(id(schema))
        if known is None:
            self._counts[id(schema)] = 1  # a schema that refers to itself
            known = 1 + sum(map(self.count, self._iterate_parts(schema)))
            self._counts[id(schema)] = known
        return known

    def _iterate_parts(self, schema: dict[str, Json]) -> Iterator[Json]:
        reference = schema.get("$ref")
        if isinstance(reference, str) and "$id" not in schema:
            yield self._resolver.lookup(reference).contents
        for keyword in ("allOf", "anyOf", "oneOf"):
            options = schema.get(keyword)
            yield from options if isinstance(options, list) else ()
        for keyword in ("not", "if", "then", "else"):
            yield schema.get(keyword)
        dependents = schema.get("dependentSchemas")
        yield from dependents.values() if isinstance(dependents, dict) else ()


def _find_default_problems(schema: dict[str, Json]) -> Iterator[str]:
    """Yields the problems of defaults that an execution would use although they do not fit."""
    if "default" in schema:
        yield "default: the input itself can't have a default; give one to each of its properties"
    for part in _iterate_properties(schema):
        if "default" not in part:
            continue
        default = part["default"]
        try:
            errors = _list_errors(schema, part, default)
        except (RecursionError, _TooManyReferencesError):
            return  # the check of an input reports an endless $ref
        for error in errors:
            shown = describe_value(default)
            yield f"the default {shown} does not fit its schema: {_format_error('', error)}"


def _iterate_properties(schema: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yields the schema of each property, at any depth. A property may be named `default`."""
    for part in _iterate_subschemas(schema):
        properties = part.get("properties")
        if isinstance(properties, dict):
            yield from (item for item in properties.values() if isinstance(item, dict))


def _iterate_subschemas(schema: Json) -> Iterator[dict[str, Json]]:
    """Yields every object in a schema that may itself be a schema."""
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            yield part
            stack.extend(_iterate_child_values(part.items()))
        elif isinstance(part, list):
            stack.extend(part)


def _iterate_child_values(items: Iterable[tuple[str, Json]]) -> Iterator[Json]:
    return (value for key, value in items if key not in _NON_SCHEMA_KEYWORDS)
