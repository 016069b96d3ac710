"""The JSON Schema of a type accepts a value exactly if the value can be converted."""

import datetime as dt
import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pytest

from runnel.authoring.input_schema import find_value_problems, is_surely_valid
from runnel.authoring.single_types import MismatchError
from runnel.authoring.storable_values import to_json
from runnel.authoring.value_types import build_schemas, compile_type


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    TEXT = "a"
    NUMBER = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 4


class Kept(enum.IntFlag):
    READ = 1


Wide = enum.Flag("Wide", [f"BIT_{number}" for number in range(8)])  # type: ignore[misc]


@dataclass
class Point:
    x: int
    names: dict[int, str]


Aware = Annotated[dt.datetime, msgspec.Meta(tz=True)]
Naive = Annotated[dt.datetime, msgspec.Meta(tz=False)]
NOON = "2026-01-02T12:00:00"
ID = "12345678-1234-5678-1234-567812345678"

ACCEPTED: list[tuple[Any, Any, Any]] = [
    (Point, {"x": 1.0, "names": {"1": "a"}}, Point(1, {1: "a"})),
    (set[int], [1.0, 2], {1, 2}),
    (Annotated[int, msgspec.Meta(ge=1)], 2.0, 2),
    (dict[int, str], {"-5": "a"}, {-5: "a"}),
    (dict[float, str], {"1.5": "a"}, {1.5: "a"}),
    (dict[dt.date, str], {"2026-01-02": "a"}, {dt.date(2026, 1, 2): "a"}),
    (dict[UUID, str], {ID: "a"}, {UUID(ID): "a"}),
    (dict[Color, str], {"red": "a"}, {Color.RED: "a"}),
    (dict[Level, str], {"1": "a"}, {Level.LOW: "a"}),
    (dict[Mixed, int], {"a": 1, "2": 2}, {Mixed.TEXT: 1, Mixed.NUMBER: 2}),
    (dict[Mixed, dt.date], {"2": "2026-01-02"}, {Mixed.NUMBER: dt.date(2026, 1, 2)}),
    (dict[Literal[Color.RED], int], {"red": 1}, {Color.RED: 1}),
    (Literal[Color.RED], "red", Color.RED),
    (list[Literal[Color.RED, Mixed.NUMBER, "x"]], ["red", 2, "x"], [Color.RED, Mixed.NUMBER, "x"]),
    (Aware, NOON + "Z", dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)),
    (
        Aware,
        NOON + "-05:00",
        dt.datetime(2026, 1, 2, 12, tzinfo=dt.timezone(dt.timedelta(hours=-5))),
    ),
    (Naive, NOON, dt.datetime(2026, 1, 2, 12)),  # noqa: DTZ001
    (Naive, NOON + ".5", dt.datetime(2026, 1, 2, 12, 0, 0, 500_000)),  # noqa: DTZ001
    (dt.timedelta, "P1DT2M", dt.timedelta(days=1, minutes=2)),
    (Access, 5, Access.READ | Access.WRITE),
    (Access, 4.0, Access.WRITE),
    (Kept, 8, Kept(8)),
    (Wide, 255, ~Wide(0)),
]
REFUSED: list[tuple[Any, Any]] = [
    (Point, {"x": 1.5, "names": {}}),
    (Point, {"x": 1, "names": {"one": "a"}}),
    (dict[int, str], {"01": "a"}),
    (dict[float, str], {"a": "a"}),
    (dict[dt.date, str], {"2026-02-30": "a"}),
    (dict[dt.timedelta, str], {"P1Y": "a"}),
    (dict[UUID, str], {"a": "a"}),
    (dict[Color, str], {"green": "a"}),
    (dict[Level, str], {"2": "a"}),
    (dict[Mixed, int], {"b": 1}),
    (dict[dt.date, Color], {"x": "red"}),
    (Literal[Color.RED], "blue"),
    (Aware, NOON),
    (Naive, NOON + "Z"),
    (Naive, NOON + "-05:00"),
    (dt.timedelta, "P1Y"),
    (dt.timedelta, "P1M"),
    (Access, 2),
    (list[Access], [8]),
    (Wide, 256),
]


def build_schema(annotation: Any) -> dict[str, Any]:
    (schema,), parts = build_schemas([annotation])
    return {**schema, "$defs": parts}


@pytest.mark.parametrize(("annotation", "stored", "value"), ACCEPTED)
def test_an_accepted_value_is_converted(annotation: Any, stored: Any, value: Any) -> None:
    assert find_value_problems(build_schema(annotation), stored, where="input") == []

    decoded = compile_type(annotation).decode(stored, "input")

    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(("annotation", "stored", "value"), ACCEPTED)
def test_a_value_as_runnel_stores_it_needs_only_the_quick_check(
    annotation: Any, stored: Any, value: Any
) -> None:
    assert is_surely_valid(build_schema(annotation), to_json(value)), stored


@pytest.mark.parametrize(("annotation", "stored"), REFUSED)
def test_a_value_that_can_not_be_converted_is_refused(annotation: Any, stored: Any) -> None:
    assert find_value_problems(build_schema(annotation), stored, where="input")

    with pytest.raises(MismatchError):
        compile_type(annotation).decode(stored, "input")
