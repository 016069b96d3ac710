"""Converts JSON values into the types that annotations name, and writes the JSON Schema of types.

msgspec converts most types. A type that msgspec refuses, such as a union of two dataclasses, is
converted part by part. A class that Runnel does not know is not converted.
"""

import collections.abc
import dataclasses
import enum
import functools
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import PurePath
from typing import Any

import msgspec
from msgspec import inspect as type_inspection

from runnel.authoring.single_types import (
    ChoiceType,
    FlagType,
    MismatchError,
    PathType,
    UnknownType,
    ValueType,
)
from runnel.authoring.storable_values import PYDANTIC_VALIDATOR, to_json
from runnel.authoring.type_hints import (
    EVALUATION_ERRORS,
    list_fields,
    read_hints,
    unwrap_annotation,
)
from runnel.authoring.value_schemas import (
    Definitions,
    are_all_parts,
    build_key_schema,
    build_native_schemas,
)
from runnel.core.message_text import describe_value
from runnel.core.values import Json, replace_whole_floats


@functools.lru_cache(maxsize=4096)
def _compile_cached(annotation: Any, _text: str) -> ValueType:
    return _compile(annotation, {})


def compile_type(annotation: Any) -> ValueType:
    """Returns the compiled annotation. Each annotation is compiled once.

    The text of the annotation is a part of the key, because `A | B` equals `B | A`, but the order
    of the members decides.
    """
    try:
        return _compile_cached(annotation, "" if isinstance(annotation, type) else repr(annotation))
    except TypeError:  # an annotation that can't be hashed, such as Annotated[int, {}]
        return _compile(annotation, {})


class PlainType(ValueType):
    """A type that JSON has. The value is passed on without a check, as Python does."""

    is_plain = True

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def decode(self, value: Json, path: str) -> Any:
        return value

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return _build_native_schema(self._annotation, definitions)


class NativeType(ValueType):
    """A type that msgspec converts, with Pydantic models and paths inside it."""

    def __init__(self, annotation: Any, *, has_sets: bool = False) -> None:
        self._annotation = annotation
        self.has_sets = has_sets
        self._key_holder: Any = dict[annotation, None]
        self._decode_json = msgspec.json.Decoder(annotation, dec_hook=_decode_custom).decode

    def decode(self, value: Json, path: str) -> Any:
        # A compiled decoder of JSON takes half of the time of `msgspec.convert`, also with the
        # encoding: 2 µs for a list of one dataclass.
        return self.decode_json(msgspec.json.encode(value), path)

    def decode_json(self, data: bytes, path: str) -> Any:
        try:
            return self._decode_json(data)
        except (msgspec.ValidationError, RecursionError, TypeError) as error:
            # TypeError: the items of a set can't be hashed
            value = msgspec.json.decode(data)
            whole = replace_whole_floats(value)
            if whole is not value:
                return self.decode(whole, path)
            _raise_at_part(self._annotation, value, path)
            raise MismatchError(path, _shorten_msgspec_message(error)) from None

    def decode_key(self, key: str, path: str) -> Any:
        try:
            (decoded,) = msgspec.convert(
                {key: None}, self._key_holder, str_keys=True, dec_hook=_decode_custom
            )
        except msgspec.ValidationError as error:
            raise MismatchError(path, _shorten_msgspec_message(error)) from None
        return decoded

    def build_key_schema(self, definitions: Definitions) -> dict[str, Json]:
        return build_key_schema(type_inspection.type_info(self._annotation))

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return _build_native_schema(self._annotation, definitions)


def _raise_at_part(annotation: Any, value: Json, path: str) -> None:
    """Raises MismatchError for the part of the value that does not fit, if a part can be found.

    msgspec names neither the key of a dict nor a part of a Pydantic model.
    """
    by_parts = _compile_parts(annotation, {})
    if by_parts is not None and not isinstance(by_parts, NativeType):
        by_parts.decode(value, path)


_MSGSPEC_PATH = re.compile(r" - at `.*$", re.DOTALL)


def _shorten_msgspec_message(error: Exception) -> str:
    """Returns a message of msgspec without its path, which begins at the wrong value."""
    text = _MSGSPEC_PATH.sub("", str(error)).replace("`", "")
    return text[:1].lower() + text[1:] if text else "the value is nested too deeply"


class ModelType(ValueType):
    """A class of Pydantic, which is converted by its own validators.

    Values are stored by field name, because the body of a workflow reads them by field name. So
    aliases are not used.
    """

    def __init__(self, annotation: Any) -> None:
        self._class = annotation

    def decode(self, value: Json, path: str) -> Any:
        try:
            return self._validate(value)
        except ValueError as error:
            decoded = self._decode_without_computed_fields(value, error)
            if decoded is None:
                raise _convert_pydantic_error(error, path) from None
            return decoded

    def _validate(self, value: Json) -> Any:
        # As JSON, because a strict model accepts the text of a date in JSON only.
        data = msgspec.json.encode(value)
        return getattr(self._class, PYDANTIC_VALIDATOR).validate_json(
            data, by_alias=False, by_name=True
        )

    def _decode_without_computed_fields(self, value: Json, error: Any) -> Any | None:
        """Returns the value of a model that forbids extra fields, but stores computed fields.

        Returns None if the extra fields are not what the model computes.
        """
        problems = error.errors(include_url=False, include_input=False)
        if any(problem["type"] != "extra_forbidden" for problem in problems):
            return None
        rest = msgspec.json.decode(msgspec.json.encode(value))
        try:
            for problem in problems:
                *holders, name = problem["loc"]
                del functools.reduce(operator.getitem, holders, rest)[name]
            decoded = self._validate(rest)
        except (ValueError, LookupError, TypeError):
            return None
        return decoded if to_json(decoded) == value else None

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        adapter = sys.modules["pydantic"].TypeAdapter(self._class)
        schema = adapter.json_schema(by_alias=False)
        _allow_computed_fields(schema, adapter.json_schema(by_alias=False, mode="serialization"))
        named: dict[str, Json] = definitions.add_schema(schema, schema.pop("$defs", {}))
        return named


def _allow_computed_fields(schema: Json, stored: Json) -> None:
    """Adds the computed fields, which are stored, to the models that forbid extra fields."""
    parts = [(schema, stored)]
    stored_parts = stored.get("$defs", {})
    parts += [(part, stored_parts.get(name, {})) for name, part in schema.get("$defs", {}).items()]
    for part, stored_part in parts:
        if part.get("additionalProperties") is False:
            part["properties"] = {**stored_part.get("properties", {}), **part["properties"]}


def _convert_pydantic_error(error: Any, path: str) -> MismatchError:
    first = error.errors(include_url=False)[0]
    where = path + "".join(
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]
    )
    problem = str(first["msg"])
    return MismatchError(where, problem[:1].lower() + problem[1:])


class SequenceType(ValueType):
    """A list, set or tuple of any length, stored as a list."""

    def __init__(self, item: ValueType, build: Callable[[list[Any]], Any]) -> None:
        self._item = item
        self._build = build
        self.has_sets = build in (set, frozenset) or item.has_sets

    def decode(self, value: Json, path: str) -> Any:
        items = [
            self._item.decode(item, f"{path}[{index}]")
            for index, item in enumerate(_require(value, list, "a list", path))
        ]
        try:
            return self._build(items)
        except TypeError as error:  # a set of dicts
            raise MismatchError(path, str(error)) from None

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return {"type": "array", "items": self._item.build_schema(definitions)}


class TupleType(ValueType):
    """A tuple of a fixed length, or a NamedTuple, stored as a list."""

    def __init__(self, items: Sequence[ValueType], build: Callable[..., Any], least: int) -> None:
        self._items = items
        self.has_sets = any(item.has_sets for item in items)
        self._build = build
        self._least = least

    def decode(self, value: Json, path: str) -> Any:
        _require(value, list, "a list", path)
        if not self._least <= len(value) <= len(self._items):
            raise MismatchError(path, f"expected {len(self._items)} items, got {len(value)}")
        return self._build(
            item_type.decode(item, f"{path}[{index}]")
            for index, (item_type, item) in enumerate(zip(self._items, value, strict=False))
        )

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return {
            "type": "array",
            "prefixItems": [item.build_schema(definitions) for item in self._items],
            "minItems": self._least,
            "maxItems": len(self._items),
        }


class MappingType(ValueType):
    """A dict, stored as an object. Keys are texts in JSON."""

    def __init__(self, key: ValueType, value: ValueType) -> None:
        self._key = key
        self._value = value
        self.has_sets = value.has_sets

    def decode(self, value: Json, path: str) -> Any:
        _require(value, dict, "an object", path)
        return {
            self._decode_key(key, path): self._value.decode(item, _join_path(path, key))
            for key, item in value.items()
        }

    def _decode_key(self, key: str, path: str) -> Any:
        try:
            return self._key.decode_key(key, path)
        except MismatchError as error:
            problem = f"the key {describe_value(key)}: {error.problem}"
            raise MismatchError(path, problem) from None

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        schema: dict[str, Json] = {"type": "object"}
        names = self._key.build_key_schema(definitions)
        if names:
            schema["propertyNames"] = names
        return schema | {"additionalProperties": self._value.build_schema(definitions)}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a class. `stored_name` is its key in JSON."""

    name: str
    stored_name: str
    type: ValueType
    is_required: bool


class FieldsType(ValueType):
    """A class with named fields, stored as an object: a dataclass, a Struct or a TypedDict.

    `fields` is filled after the construction, because a class may contain itself. Unknown keys are
    ignored, so that older code can read a value of newer code.
    """

    def __init__(self, name: str, build: Callable[[dict[str, Any]], Any]) -> None:
        self.fields: list[FieldType] = []
        self._name = name
        self._build = build

    def decode(self, value: Json, path: str) -> Any:
        _require(value, dict, "an object", path)
        arguments = {}
        for field in self.fields:
            if field.stored_name in value:
                part = value[field.stored_name]
                arguments[field.name] = field.type.decode(part, _join_path(path, field.stored_name))
            elif field.is_required:
                raise MismatchError(path, f"the field '{field.stored_name}' is missing")
        try:
            return self._build(arguments)
        except (TypeError, ValueError) as error:  # the code of the class refuses the values
            raise MismatchError(path, str(error) or type(error).__name__) from None

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        is_new, reference = definitions.refer(self, self._name)
        if is_new:
            required = [field.stored_name for field in self.fields if field.is_required]
            properties = {
                field.stored_name: field.type.build_schema(definitions) for field in self.fields
            }
            schema = {"title": self._name, "type": "object", "properties": properties}
            definitions.define(self, schema | ({"required": required} if required else {}))
        return reference


# What unions have decoded so far, by the ids of union and value and by path. Union and value are
# kept too, so that no other object gets their ids. None outside of a union.
_decoded_parts: ContextVar[dict[tuple[int, int, str], tuple[Any, ...]] | None] = ContextVar(
    "decoded_parts", default=None
)


class UnionType(ValueType):
    """A union whose members msgspec can't distinguish.

    Takes the first member that stores the value in the same way; otherwise the first member that
    accepts the value. A plain text is tried last.
    """

    def __init__(self, members: Sequence[ValueType]) -> None:
        self._members = sorted(members, key=lambda member: member.is_plain)
        self.has_sets = any(member.has_sets for member in members)

    def decode(self, value: Json, path: str) -> Any:
        """Decodes each value once per union: a union may contain itself, and each of its members
        would decode the same parts again.
        """
        memo = _decoded_parts.get()
        if memo is None:
            token = _decoded_parts.set({})
            try:
                return self.decode(value, path)
            finally:
                _decoded_parts.reset(token)
        key = id(self), id(value), path
        if key not in memo:
            try:
                memo[key] = self, value, self._decode_member(value, path)
            except MismatchError as error:
                memo[key] = self, value, error
        *_, decoded = memo[key]
        if isinstance(decoded, MismatchError):
            raise decoded
        return decoded

    def _decode_member(self, value: Json, path: str) -> Any:
        problems: list[MismatchError] = []
        accepted: list[Any] = []
        for member in self._members:
            try:
                decoded = member.decode(value, path)
            except MismatchError as error:
                problems.append(error)
                continue
            if to_json(decoded) == value:
                return decoded
            accepted.append(decoded)
        if accepted:
            return accepted[0]
        deepest = max(problems, key=lambda problem: len(problem.path))
        raise deepest

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return {"anyOf": [member.build_schema(definitions) for member in self._members]}


class CheckedPlainType(PlainType):
    """A type that JSON has, as a part of a type that is converted: the value is checked."""

    is_plain = True

    def decode(self, value: Json, path: str) -> Any:
        try:
            return msgspec.convert(value, self._annotation, str_keys=True)
        except (msgspec.ValidationError, RecursionError) as error:
            whole = replace_whole_floats(value)
            if whole is not value:
                return self.decode(whole, path)
            raise MismatchError(path, _shorten_msgspec_message(error)) from None


def _require(value: Json, kind: type, expected: str, path: str) -> Any:
    if not isinstance(value, kind):
        raise MismatchError(path, f"expected {expected}, got {describe_value(value)}")
    return value


def _join_path(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{key!r}]"


# Compiling annotations.

_PLAIN = (type_inspection.AnyType, type_inspection.NoneType, type_inspection.BoolType)
_PLAIN_WITHOUT_LIMITS = (
    type_inspection.IntType,
    type_inspection.FloatType,
    type_inspection.StrType,
    type_inspection.ListType,
    type_inspection.DictType,
)
_SIMPLE_ANNOTATIONS = frozenset({Any, int, float, str, bool, list, dict, None, type(None)})
_SETS = (set, collections.abc.Set, collections.abc.MutableSet)
_SEQUENCES: Mapping[Any, Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    frozenset: frozenset,
    **dict.fromkeys(_SETS, set),
    **dict.fromkeys(
        (
            collections.abc.Sequence,
            collections.abc.MutableSequence,
            collections.abc.Collection,
            collections.abc.Iterable,
        ),
        list,
    ),
}
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
Memo: typing.TypeAlias = dict[Any, FieldsType]
"""The classes that are being compiled. A class may contain itself."""


def _compile(annotation: Any, memo: Memo, *, is_part: bool = False) -> ValueType:
    """Compiles an annotation. `is_part` is True for a part of a type that is converted."""
    kind = CheckedPlainType if is_part else PlainType
    annotation = unwrap_annotation(annotation)
    if _is_simple(annotation):
        return kind(annotation)
    info = _inspect(annotation)
    if isinstance(info, type_inspection.CustomType):
        return _compile_parts(annotation, memo) or UnknownType(annotation)
    if info is not None and are_all_parts(info, _is_plain):
        return (kind if are_all_parts(info, _is_known) else PlainType)(annotation)
    if info is not None and are_all_parts(info, _is_native):
        return NativeType(annotation, has_sets=not are_all_parts(info, _is_no_set))
    return _compile_parts(annotation, memo) or UnknownType(annotation)


def _is_simple(annotation: Any) -> bool:
    """Returns True for the most common plain types, without an inspection."""
    try:
        return annotation in _SIMPLE_ANNOTATIONS
    except TypeError:
        return False


def _inspect(annotation: Any) -> type_inspection.Type | None:
    """Returns msgspec's description of a type; None if msgspec refuses the type."""
    try:
        msgspec.json.Decoder(annotation)
        return type_inspection.type_info(annotation)
    except EVALUATION_ERRORS:
        return None


def _is_plain(info: type_inspection.Type) -> bool:
    if isinstance(info, _PLAIN):
        return True
    if isinstance(info, type_inspection.CustomType):
        has_items = info.cls in _SEQUENCES or info.cls in _MAPPINGS
        return not has_items and not _is_native(info)  # a class that is not known
    if isinstance(info, type_inspection.DictType):
        key = info.key_type
        if not isinstance(key, type_inspection.StrType | type_inspection.AnyType):
            return False
    if isinstance(info, _PLAIN_WITHOUT_LIMITS):
        limits = (getattr(info, name) for name in info.__struct_fields__)
        return all(limit is None or isinstance(limit, type_inspection.Type) for limit in limits)
    return isinstance(info, type_inspection.UnionType | type_inspection.TypedDictType)


def _is_known(info: type_inspection.Type) -> bool:
    return not isinstance(info, type_inspection.CustomType)


def _is_no_set(info: type_inspection.Type) -> bool:
    return not isinstance(info, type_inspection.SetType | type_inspection.FrozenSetType)


def _is_native(info: type_inspection.Type) -> bool:
    match info:
        case type_inspection.CustomType(cls=cls):
            return issubclass(cls, PurePath) or _is_model(cls)
        case type_inspection.EnumType(cls=cls):
            return not issubclass(cls, enum.Flag)
        case type_inspection.DataclassType(cls=cls):
            return not _is_model(cls)
        case type_inspection.RawType() | type_inspection.ExtType():
            return False
        case _:
            return True


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and hasattr(annotation, PYDANTIC_VALIDATOR)


def _compile_parts(annotation: Any, memo: Memo) -> ValueType | None:
    """Compiles the parts of a type; returns None for a class without known parts."""
    annotation = unwrap_annotation(annotation)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _compile_parts(args[0], memo)
    if origin in (typing.Union, types.UnionType):
        return UnionType([_compile(member, memo, is_part=True) for member in args])
    kind = origin or annotation
    if kind is tuple and args and args[-1] is not Ellipsis:
        parts = [_compile(arg, memo, is_part=True) for arg in args]
        return TupleType(parts, tuple, len(parts))
    if _is_simple(kind) and not args:
        return CheckedPlainType(kind)
    if kind in _SEQUENCES:
        return SequenceType(
            _compile(args[0] if args else Any, memo, is_part=True), _SEQUENCES[kind]
        )
    if kind in _MAPPINGS:
        key, item = args or (str, Any)
        return MappingType(_compile_key(key, memo), _compile(item, memo, is_part=True))
    if origin is typing.Literal:
        return ChoiceType(args)
    return _compile_class(kind, memo) if isinstance(kind, type) else None


def _compile_key(annotation: Any, memo: Memo) -> ValueType:
    """Compiles the type of the keys of a dict, which are texts in JSON."""
    compiled = _compile(annotation, memo)
    is_number = compiled.is_plain and _unwrap_key(annotation) in (int, float)
    return NativeType(annotation) if is_number else compiled


def _unwrap_key(annotation: Any) -> Any:
    annotation = unwrap_annotation(annotation)
    return annotation if isinstance(annotation, type) else None


def _compile_class(kind: Any, memo: Memo) -> ValueType | None:
    if issubclass(kind, PurePath):
        return PathType(kind)
    if _is_model(kind):
        return ModelType(kind)
    if issubclass(kind, enum.Flag):
        return FlagType(kind)
    if issubclass(kind, enum.Enum):
        return ChoiceType(kind)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = read_hints(kind)
        items = [_compile(hints.get(name, Any), memo, is_part=True) for name in kind._fields]
        return TupleType(items, kind._make, len(items))
    if kind in memo:
        return memo[kind]
    build = _find_builder(kind)
    if build is None:
        info = _inspect(kind)
        is_known = info is not None and not isinstance(info, type_inspection.CustomType)
        return NativeType(kind) if is_known else None
    fields = memo[kind] = FieldsType(kind.__name__, build)
    hints = read_hints(kind)
    fields.fields = [
        FieldType(name, stored_name, _compile(hints.get(name, Any), memo, is_part=True), required)
        for name, stored_name, required in list_fields(kind)
    ]
    fields.has_sets = any(field.type.has_sets for field in fields.fields)
    return fields


def _find_builder(kind: Any) -> Callable[[dict[str, Any]], Any] | None:
    """Returns what builds a value from its fields; None for a class without fields."""
    if typing.is_typeddict(kind):
        return dict
    if issubclass(kind, msgspec.Struct):
        if kind.__struct_config__.array_like:
            return None
        return lambda fields: kind(**fields)
    if dataclasses.is_dataclass(kind):
        return lambda fields: _build_dataclass(kind, fields)
    return None


def _find_required_init_var(kind: Any) -> str | None:
    """Returns the name of a parameter that a dataclass needs, but does not store."""
    stored = {field.name for field in dataclasses.fields(kind)}
    names = (
        field.name
        for field in kind.__dataclass_fields__.values()
        if field.name not in stored
        and "InitVar" in str(field.type)
        and field.default is dataclasses.MISSING
    )
    return next(names, None)


def _build_dataclass(kind: Any, values: dict[str, Any]) -> Any:
    init_var = _find_required_init_var(kind)
    if init_var is not None:
        raise TypeError(
            f"the InitVar {init_var!r} of {kind.__name__} is not stored; give it a default, or "
            "make it a field"
        )
    own = {field.name for field in dataclasses.fields(kind) if not field.init}
    built = kind(**{name: value for name, value in values.items() if name not in own})
    for name in own & values.keys():
        object.__setattr__(built, name, values[name])
    return built


def _decode_custom(kind: Any, value: Json) -> Any:
    """Converts a class that msgspec does not know, for msgspec; raises ValueError."""
    try:
        return compile_type(kind).decode(value, "value")
    except MismatchError as error:
        raise ValueError(error.problem) from None


# JSON Schema.


def build_schemas(annotations: Sequence[Any]) -> tuple[list[dict[str, Json]], dict[str, Json]]:
    """Returns one schema per annotation, and the definitions that the schemas refer to.

    Raises TypeError if JSON can't represent a type.
    """
    kinds = [compile_type(annotation) for annotation in annotations]
    if all(isinstance(kind, NativeType | PlainType) for kind in kinds):
        try:
            return build_native_schemas(annotations)
        except TypeError:  # a Pydantic model or a path is a part of a type
            pass
    definitions = Definitions()
    return [kind.build_schema(definitions) for kind in kinds], definitions.parts


def _build_native_schema(annotation: Any, definitions: Definitions) -> dict[str, Json]:
    inner = Definitions()
    (schema,), parts = build_native_schemas(
        [annotation], lambda kind: compile_type(kind).build_schema(inner)
    )
    added: dict[str, Json] = definitions.add_schema(schema, {**inner.parts, **parts})
    return added
