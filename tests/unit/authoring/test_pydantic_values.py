"""How Pydantic models are stored: by field names, and with sets that are sorted."""

from dataclasses import dataclass

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel

from runnel.authoring.signatures import compile_signature
from runnel.authoring.storable_values import to_json
from runnel.engine.worker.outputs import encode_result

WORDS = [f"word-{number}" for number in range(50)]


class Tags(BaseModel):
    tags: set[str]
    numbers: set[int] = set()
    by_name: dict[str, list[frozenset[str]]] = {}
    mixed: set[int | str] = set()


class Holder(BaseModel):
    inner: Tags


class Root(RootModel[set[str]]):
    pass


@dataclass
class Outer:
    tags: Tags


class Aliased(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    total: int = Field(alias="totalAmount")


@pytest.mark.parametrize("words", [WORDS, WORDS[::-1]])
def test_a_set_in_a_model_is_stored_as_a_sorted_list(words: list[str]) -> None:
    model = Tags(
        tags=set(words), numbers={10, 9, 100}, by_name={"a": [frozenset(words)]}, mixed={"b", 1}
    )
    stored = to_json(model)

    assert stored["tags"] == sorted(WORDS)
    assert stored["numbers"] == [9, 10, 100]
    assert stored["by_name"] == {"a": [sorted(WORDS)]}
    assert sorted(map(str, stored["mixed"])) == ["1", "b"]
    assert to_json(Holder(inner=model)) == {"inner": stored}
    assert to_json(Outer(model)) == {"tags": stored}
    assert to_json(Root(set(words))) == sorted(WORDS)
    assert msgspec.json.decode(encode_result(model)) == stored


def test_a_model_that_serializes_by_alias_is_stored_by_field_name() -> None:
    def total(order: Aliased) -> Aliased:
        return order

    signature = compile_signature(total)
    assert signature is not None

    data = encode_result(Aliased(totalAmount=3), signature)

    assert msgspec.json.decode(data) == {"total": 3}
    assert signature.decode_arguments({"order": {"total": 3}}) == {"order": Aliased(totalAmount=3)}
