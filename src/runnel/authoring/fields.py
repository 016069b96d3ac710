"""Reads an object by a table of its keys, and refuses what the table does not have."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import msgspec

from runnel.authoring.place import Place
from runnel.core.checks.values import Check
from runnel.core.checks.wording import did_you_mean, quoted
from runnel.core.json_types import Json


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
