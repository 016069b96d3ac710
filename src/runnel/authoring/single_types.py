"""The base of compiled annotations, and the types without parts that msgspec does not convert."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import PurePath
from typing import Any, ClassVar

import msgspec

from runnel.authoring.storable_values import to_json
from runnel.authoring.value_schemas import Definitions, build_flag_schema
from runnel.core.message_text import describe_value
from runnel.core.values import Json, replace_whole_floats


class MismatchError(Exception):
    """A JSON value does not fit a type. `path` names the part that does not fit."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class ValueType(ABC):
    """A compiled annotation. `is_plain` is True if JSON values need no conversion."""

    is_plain: ClassVar[bool] = False
    has_sets: bool = False
    """Whether a value may hold a set. Then its JSON is sorted."""

    @abstractmethod
    def decode(self, value: Json, path: str) -> Any:
        """Returns the value in its type; raises MismatchError. `path` names the value."""

    def decode_json(self, data: bytes, path: str) -> Any:
        """Returns the encoded value in its type; raises MismatchError."""
        return self.decode(msgspec.json.decode(data), path)

    def decode_key(self, key: str, path: str) -> Any:
        """Returns the key of a dict in its type; raises MismatchError."""
        return self.decode(key, path)

    def build_key_schema(self, definitions: Definitions) -> dict[str, Json]:
        """Returns the schema of the keys of a dict; an empty schema for any key."""
        return {}

    @abstractmethod
    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        """Returns the JSON Schema, and adds the parts that it refers to.

        Raises TypeError if JSON can't represent the type.
        """


class UnknownType(ValueType):
    """A class that Runnel does not know, or an annotation without a type at run time."""

    is_plain = True

    def __init__(self, annotation: Any) -> None:
        self._annotation = annotation

    def decode(self, value: Json, path: str) -> Any:
        return value

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        raise TypeError(f"JSON can't represent {self._annotation!r}")


class PathType(ValueType):
    """A path, stored as text."""

    def __init__(self, annotation: type[PurePath]) -> None:
        self._class = annotation

    def decode(self, value: Json, path: str) -> Any:
        if not isinstance(value, str):
            raise MismatchError(path, f"expected a path as text, got {describe_value(value)}")
        return self._class(value)

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return {"type": "string", "format": "path"}


class ChoiceType(ValueType):
    """A `Literal`, or an enum, that msgspec refuses. `members` has each one with its JSON."""

    def __init__(self, members: Iterable[Any]) -> None:
        self._members = [(to_json(member), member) for member in members]

    def decode(self, value: Json, path: str) -> Any:
        for stored, member in self._members:
            if stored == value and isinstance(stored, bool) == isinstance(value, bool):
                return member
        known = ", ".join(describe_value(stored) for stored, _ in self._members)
        raise MismatchError(path, f"expected one of {known}, got {describe_value(value)}")

    def decode_key(self, key: str, path: str) -> Any:
        return self.decode(self._get_values_by_key().get(key, key), path)

    def _get_values_by_key(self) -> dict[str, Json]:
        return {next(iter(to_json({stored: None}))): stored for stored, _ in self._members}

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return {"enum": [stored for stored, _ in self._members]}

    def build_key_schema(self, _definitions: Definitions) -> dict[str, Json]:
        return {"enum": list(self._get_values_by_key())}


class FlagType(ValueType):
    """A flag, stored as a number."""

    def __init__(self, annotation: type[enum.Flag]) -> None:
        self._class = annotation

    def decode(self, value: Json, path: str) -> Any:
        value = replace_whole_floats(value)
        if type(value) is not int:
            raise MismatchError(path, f"expected a whole number, got {describe_value(value)}")
        try:
            return self._class(value)
        except ValueError as error:
            raise MismatchError(path, str(error)) from None

    def build_schema(self, definitions: Definitions) -> dict[str, Json]:
        return build_flag_schema(self._class)
