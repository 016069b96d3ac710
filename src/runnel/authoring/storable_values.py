"""Writes values of Python types as JSON, and finds the part of a value that JSON can't hold."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from runnel.authoring.type_hints import list_fields
from runnel.core.values import Json

PYDANTIC_VALIDATOR = "__pydantic_validator__"
"""An attribute of Pydantic models and dataclasses. Other classes do not have it."""
_PARTS_DEPTH_MAX = 200


def convert_custom(value: Any) -> Any:
    """Converts a value of a type that msgspec does not know, such as a path or a Pydantic model.

    The function checks for the methods of such types, so that it need not import their packages.
    Raises TypeError if JSON can't hold the value.
    """
    if callable(dump := getattr(value, "model_dump", None)):
        is_model = hasattr(value, PYDANTIC_VALIDATOR)
        return _dump_model(value) if is_model else dump(mode="json")
    if hasattr(value, "dtype"):
        return value.tolist() if getattr(value, "shape", ()) else value.item()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PurePath):
        return str(value)
    if _is_secret(value):
        raise TypeError(_SECRET_PROBLEM)
    kind = type(value)
    if kind in (tuple, frozenset, bytes, bool, type(None)):  # msgspec encodes these as values
        raise TypeError(f"a key of a dict is {value!r}; keys must be texts or numbers")
    raise TypeError(
        f"it holds a {kind.__module__}.{kind.__qualname__}; return numbers, texts, lists, dicts, "
        "dataclasses or pydantic models"
    )


def _dump_model(model: Any) -> Json:
    """Returns a Pydantic model as JSON: by field names, as it is read, and with sorted sets."""
    dumped = model.model_dump(mode="json", by_alias=False)
    if _STARS in msgspec.json.encode(dumped) and _holds_part(model, _is_hidden_secret):
        raise TypeError(_SECRET_PROBLEM)
    return _sort_sets(dumped, model) if _holds_part(model, _is_set) else dumped


_SECRET_PROBLEM = (
    "it holds a secret of Pydantic, which is stored as stars; name the secret with runnel.secret "
    "in the workflow, and read it in each task that needs it"
)


_STARS = b'"**********"'


def _is_secret(value: object) -> bool:
    return callable(getattr(value, "get_secret_value", None))


def _is_hidden_secret(value: Any) -> bool:
    """Returns True for a secret that Pydantic writes as stars. It writes an empty one as it is."""
    return _is_secret(value) and bool(value.get_secret_value())


def _sort_sets(dumped: Json, value: Any) -> Json:
    """Returns the JSON of a value, with the list of each set in it sorted."""
    if isinstance(value, set | frozenset) and isinstance(dumped, list):
        try:
            return sorted(dumped)
        except TypeError:  # items without an order, such as objects
            return sorted(dumped, key=encode_sorted)
    if isinstance(dumped, list) and isinstance(value, list | tuple):
        return [_sort_sets(item, part) for item, part in zip(dumped, value, strict=False)]
    if isinstance(dumped, dict) and isinstance(value, Mapping):
        parts = zip(dumped.items(), value.values(), strict=False)
        return {key: _sort_sets(item, part) for (key, item), part in parts}
    if isinstance(dumped, dict):
        return {name: _sort_sets(item, getattr(value, name, None)) for name, item in dumped.items()}
    root = getattr(value, "root", None)  # a RootModel is stored as its root
    return dumped if root is None else _sort_sets(dumped, root)


_encoder = msgspec.json.Encoder(enc_hook=convert_custom)
_sorting_encoder = msgspec.json.Encoder(enc_hook=convert_custom, order="deterministic")
encode_value = _encoder.encode
"""Encodes a value as JSON. Raises TypeError, ValueError, OverflowError or RecursionError."""


def encode_sorted(value: Any) -> bytes:
    """Encodes a value with sets as sorted lists, so that equal values have equal JSON.

    Items without an order, such as 1 and "a", or dataclasses, are sorted by their JSON.
    """
    try:
        return _sorting_encoder.encode(value)
    except TypeError:
        return _encoder.encode(_replace_sets(value))


def _replace_sets(value: Any) -> Any:
    """Returns the value with each set in it replaced by a list that is sorted by JSON."""
    if isinstance(value, set | frozenset):
        return sorted(map(_replace_sets, value), key=_sorting_encoder.encode)
    if isinstance(value, Mapping):
        return {key: _replace_sets(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_sets(item) for item in value]
    fields = get_stored_fields(value)
    return value if fields is None else _replace_sets(fields)


def to_json(value: object) -> Json:
    """Returns the value as JSON would store it, with sets as sorted lists.

    Raises TypeError, ValueError, OverflowError or RecursionError.
    """
    # Encoding a value with a set sorts its dicts too.
    encode = encode_sorted if _holds_part(value, _is_set) else encode_value
    return msgspec.json.decode(encode(value))


def _is_set(value: object) -> bool:
    return isinstance(value, set | frozenset)


def _holds_part(value: object, is_wanted: Callable[[object], bool]) -> bool:
    """Returns True if the value or a part of it is wanted."""
    pending = [(value, 0)]
    while pending:
        part, depth = pending.pop()
        if is_wanted(part):
            return True
        if depth < _PARTS_DEPTH_MAX:
            pending += [(item, depth + 1) for _, item in iterate_parts(part, "")]
    return False


def find_unstorable_path(value: Any, path: str) -> str:
    """Returns the path of the innermost part that JSON can't hold."""
    for _ in range(_PARTS_DEPTH_MAX):
        part = next(
            (
                (part_path, part)
                for part_path, part in iterate_parts(value, path)
                if not _is_storable(part)
            ),
            None,
        )
        if part is None:
            break
        path, value = part
    return path


def iterate_parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yields the items or fields of a value, each with its path."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            is_name = isinstance(key, str) and key.isidentifier()
            yield f"{path}.{key}" if is_name else f"{path}[{key!r}]", item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"{path}[{index}]", item
    else:
        for name in _list_field_names(value):
            yield f"{path}.{name}", getattr(value, name, None)


def get_stored_fields(value: object) -> dict[str, Any] | list[Any] | None:
    """Returns the fields of a dataclass or Struct as they are stored, without their own conversion.

    Returns None for any other value.
    """
    kind: Any = type(value)
    if isinstance(value, msgspec.Struct) and not kind.__struct_config__.tag:
        values = {name: getattr(value, name) for name in kind.__struct_fields__}
        if kind.__struct_config__.array_like:
            return list(values.values())
        return {stored: values[name] for name, stored, _ in list_fields(kind)}
    if dataclasses.is_dataclass(kind) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    return None


def _list_field_names(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return tuple(getattr(type(value), "model_fields", ()))


def _is_storable(value: Any) -> bool:
    try:
        _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False
    return True
