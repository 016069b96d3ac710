"""Sets are stored as sorted lists, also if their items have no order."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from runnel.authoring.single_types import MismatchError
from runnel.authoring.storable_values import encode_sorted, to_json
from runnel.authoring.value_types import build_schemas, compile_type

NAMES = [f"name-{number:02}" for number in range(30)]


@dataclass(frozen=True)
class Item:
    name: str


@dataclass
class Order:
    items: set[Item]
    tags: set[str]


class Stock(msgspec.Struct, rename="camel"):
    all_items: frozenset[Item]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({Item(name) for name in NAMES}, [{"name": name} for name in NAMES]),
        (
            Order({Item(name) for name in NAMES}, set(NAMES)),
            {"items": [{"name": name} for name in NAMES], "tags": NAMES},
        ),
        (
            [Stock(frozenset(map(Item, NAMES))), {"a": {1, "b", None}}],
            [{"allItems": [{"name": name} for name in NAMES]}, {"a": ["b", 1, None]}],
        ),
        ({frozenset({name, 1}) for name in NAMES}, [[name, 1] for name in NAMES]),
    ],
)
def test_equal_sets_have_equal_json(value: Any, stored: Any) -> None:
    assert to_json(value) == stored
    assert msgspec.json.decode(encode_sorted(value)) == stored


def test_a_set_of_values_without_a_hash_is_refused_with_its_path() -> None:
    with pytest.raises(MismatchError, match="items: unhashable type: 'Order'"):
        compile_type(set[Order]).decode([{"items": [], "tags": []}], "items")


@dataclass(frozen=True)
class Options:
    tags: frozenset[str] = frozenset(NAMES)
    items: frozenset[Item] = frozenset(map(Item, NAMES))


class Nested(msgspec.Struct, rename="camel"):
    all_options: Options = Options()


@pytest.mark.parametrize("annotation", [Options, Nested, list[Options], dict[str, Nested] | None])
def test_the_schema_of_a_class_with_sets_as_defaults_is_the_same_in_each_process(
    annotation: Any,
) -> None:
    _, definitions = build_schemas([annotation])

    properties = definitions["Options"]["properties"]
    assert properties["tags"]["default"] == NAMES
    assert properties["items"]["default"] == [{"name": name} for name in NAMES]
    if "Nested" in definitions:
        default = definitions["Nested"]["properties"]["allOptions"]["default"]
        assert default["tags"] == NAMES
