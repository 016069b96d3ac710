"""Builds the JSON Schema of types that msgspec converts, and reads the parts of types."""

import enum
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import inspect as type_inspection

from runnel.authoring.storable_values import to_json
from runnel.core.values import Json


class Definitions:
    """The parts of a JSON Schema that `$ref` names. Two types with one name get two parts."""

    def __init__(self) -> None:
        self.parts: dict[str, Json] = {}
        self._names: dict[int, str] = {}
        self._owners: list[object] = []  # keeps the ids of `_names` valid

    def refer(self, owner: object, title: str) -> tuple[bool, dict[str, Json]]:
        """Returns whether the owner still has to define its part, and a reference to the part."""
        is_new = id(owner) not in self._names
        if is_new:
            self._owners.append(owner)
            self._names[id(owner)] = self._find_free_name(title)
            self.parts[self._names[id(owner)]] = {}
        return is_new, {"$ref": f"#/$defs/{self._names[id(owner)]}"}

    def define(self, owner: object, schema: Json) -> None:
        self.parts[self._names[id(owner)]] = schema

    def add_schema(self, schema: Json, parts: Mapping[str, Json]) -> Json:
        """Adds the parts of a schema; returns the schema with the names that the parts got."""
        names = {name: self._find_name(name, part) for name, part in parts.items()}
        for name, part in parts.items():
            self.parts[names[name]] = _rename_references(part, names)
        return _rename_references(schema, names)

    def _find_name(self, name: str, part: Json) -> str:
        return name if self.parts.get(name) == part else self._find_free_name(name)

    def _find_free_name(self, name: str) -> str:
        number = 1
        free = name
        while free in self.parts:
            number += 1
            free = f"{name}_{number}"
        return free


def _rename_references(schema: Json, names: Mapping[str, str]) -> Json:
    if isinstance(schema, list):
        return [_rename_references(item, names) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {key: _rename_references(item, names) for key, item in schema.items()}
    reference = renamed.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix("#/$defs/")
        renamed["$ref"] = f"#/$defs/{names.get(name, name)}"
    return renamed


REFERENCE_TEMPLATE = "#/$defs/{name}"


def build_native_schemas(
    annotations: Sequence[Any], describe_custom: Callable[[Any], dict[str, Json]] | None = None
) -> tuple[list[dict[str, Json]], dict[str, Json]]:
    """Returns one schema per annotation, and the definitions that the schemas refer to.

    One call for all types gives two types with the same name separate definitions.
    `describe_custom` returns the schema of a class that msgspec does not know. Raises TypeError if
    msgspec refuses a type.
    """
    schemas, parts = msgspec.json.schema_components(
        annotations, schema_hook=describe_custom, ref_template=REFERENCE_TEMPLATE
    )
    completion = FormatCompletion(parts)
    for annotation, schema in zip(annotations, schemas, strict=True):
        completion.add_formats(type_inspection.type_info(annotation), schema)
    return list(schemas), parts


_TEXT_FORMATS = {type_inspection.DateTimeType: "date-time", type_inspection.TimeType: "time"}
_Fields = (
    type_inspection.DataclassType,
    type_inspection.StructType,
    type_inspection.TypedDictType,
    type_inspection.NamedTupleType,
)


_OFFSET = "[Zz]$|[+-][0-9]{2}:?[0-9]{2}$"
_NO_OFFSET = "^([0-9-]+[^0-9])?[0-9:.]+$"
_NO_YEARS = "^[^YMT]*(T.*)?$"  # a timedelta has no years and no months


def _find_pattern(info: type_inspection.Type) -> str | None:
    """Returns the pattern of texts that the format allows, but that the type does not."""
    match info:
        case type_inspection.DateTimeType(tz=bool(tz)) | type_inspection.TimeType(tz=bool(tz)):
            return _OFFSET if tz else _NO_OFFSET
        case type_inspection.TimeDeltaType():
            return _NO_YEARS
        case _:
            return None


_KEY_FORMATS = {
    type_inspection.DateType: "date",
    type_inspection.DateTimeType: "date-time",
    type_inspection.TimeType: "time",
    type_inspection.TimeDeltaType: "duration",
    type_inspection.UUIDType: "uuid",
    type_inspection.DecimalType: "decimal",
}


def build_key_schema(info: type_inspection.Type) -> dict[str, Json]:
    """Returns the schema of the keys of a dict, which are texts; an empty schema for any text."""
    match info:
        case type_inspection.IntType():
            return {"pattern": "^(0|-?[1-9][0-9]*)$"}
        case type_inspection.FloatType():
            return {"pattern": r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$"}
        case type_inspection.EnumType(cls=cls):
            return {"enum": list(to_json(dict.fromkeys(cls)))}
        case type_inspection.LiteralType(values=values):
            return {"enum": list(to_json(dict.fromkeys(values)))}
        case type_inspection.UnionType(types=members):
            options = [build_key_schema(member) for member in members]
            return {"anyOf": options} if all(options) else {}
        case _ if type(info) in _KEY_FORMATS:
            pattern = _find_pattern(info)
            schema: dict[str, Json] = {"format": _KEY_FORMATS[type(info)]}
            return schema | ({"pattern": pattern} if pattern else {})
        case _:
            return {}


_FLAG_BITS_MAX = 6


def build_flag_schema(kind: type[enum.Flag]) -> dict[str, Json]:
    """Returns the schema of the numbers that a flag accepts."""
    if getattr(kind, "_boundary_", enum.STRICT) is not enum.STRICT:
        return {"type": "integer"}
    bits = [1 << bit for bit in range(_get_mask(kind).bit_length()) if _get_mask(kind) >> bit & 1]
    if len(bits) > _FLAG_BITS_MAX:
        return {"type": "integer", "minimum": 0, "maximum": _get_mask(kind)}
    sums = [0]
    for bit in bits:
        sums += [number + bit for number in sums]
    return {"enum": list(sums)}


def _get_mask(kind: type[enum.Flag]) -> int:
    return functools.reduce(operator.or_, (member.value for member in kind), 0)


class FormatCompletion:
    """Adds the format to the schema of each datetime and time, and sorts the sets in defaults.

    msgspec leaves the format out, because RFC 3339 has no values without an offset. Runnel accepts
    them, see `text_formats`.
    """

    def __init__(self, parts: dict[str, Json]) -> None:
        self._parts = parts
        self._seen: set[tuple[int, int]] = set()

    def add_formats(self, info: type_inspection.Type, schema: Json) -> None:
        schema = self._resolve(schema)
        if not isinstance(schema, dict) or (id(info), id(schema)) in self._seen:
            return
        self._seen.add((id(info), id(schema)))
        text_format = _TEXT_FORMATS.get(type(info))
        if text_format is not None and schema.get("type") == "string":
            schema.setdefault("format", text_format)
        if schema.get("type") == "string" and (pattern := _find_pattern(info)):
            schema.setdefault("pattern", pattern)
        for part, part_schema in self._pair_parts(info, schema):
            self.add_formats(part, part_schema)

    def _resolve(self, schema: Json) -> Json:
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            return schema
        return self._parts.get(reference.rpartition("/")[2])

    def _pair_parts(
        self, info: type_inspection.Type, schema: dict[str, Json]
    ) -> Iterator[tuple[type_inspection.Type, Json]]:
        """Yields each part of a type with its schema."""
        match info:
            case type_inspection.UnionType(types=members):
                for option in schema.get("anyOf", ()):
                    yield from ((part, option) for part in members if self._fits(part, option))
            case type_inspection.DictType(key_type=key, value_type=item):
                names = build_key_schema(key)
                if names:
                    schema.setdefault("propertyNames", names)
                yield item, schema.get("additionalProperties")
            case type_inspection.CollectionType(item_type=item):
                yield item, schema.get("items")
            case type_inspection.TupleType(item_types=items):
                yield from zip(items, schema.get("prefixItems", ()), strict=False)
            case _ if isinstance(info, _Fields):
                by_name = schema.get("properties", {})
                in_order = schema.get("prefixItems", ())[-len(info.fields) :]
                by_order = dict(zip((f.encode_name for f in info.fields), in_order, strict=False))
                for field in info.fields:
                    part = (by_name or by_order).get(field.encode_name)
                    _sort_default(part, field)
                    yield field.type, part
            case _:
                return

    def _fits(self, info: type_inspection.Type, option: Json) -> bool:
        """Returns True if the option of a union is the schema of this member.

        msgspec allows one member of each kind in a union, and several Structs with a tag.
        """
        schema = self._resolve(option)
        if not isinstance(schema, dict):
            return False
        if isinstance(info, _Fields):
            return schema.get("title") == info.cls.__name__
        if isinstance(info, type_inspection.DictType):
            return schema.get("type") == "object"
        if isinstance(info, type_inspection.CollectionType | type_inspection.TupleType):
            return schema.get("type") == "array"
        return type(info) in _TEXT_FORMATS and schema.get("type") == "string"


def _sort_default(schema: Json, field: type_inspection.Field) -> None:
    """Sorts the sets in the default of a field. Their order differs between processes, and each
    order would be another version of the workflow.
    """
    if isinstance(schema, dict) and "default" in schema and field.default is not msgspec.NODEFAULT:
        schema["default"] = to_json(field.default)


def are_all_parts(
    info: type_inspection.Type, accepts: Callable[[type_inspection.Type], bool]
) -> bool:
    """Returns True if a type and all its parts are accepted."""
    pending = [info]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if not accepts(part):
            return False
        pending += _list_parts(part)
    return True


def _list_parts(info: type_inspection.Type) -> Iterator[type_inspection.Type]:
    for name in info.__struct_fields__:
        value = getattr(info, name)
        if isinstance(value, type_inspection.Type):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, type_inspection.Type):
                    yield item
                elif isinstance(item, type_inspection.Field):
                    yield item.type
