"""How Pydantic models are stored: by field names, and with sets that are sorted."""

from dataclasses import dataclass

import msgspec
import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    SecretBytes,
    SecretStr,
    field_serializer,
)

from runnel.authoring.signatures import compile_signature
from runnel.authoring.storable_values import to_json
from runnel.engine.worker.outputs import NotJsonError, encode_result

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


class Login(BaseModel):
    name: str
    token: SecretStr | SecretBytes = SecretStr("")


class Logins(BaseModel):
    logins: list[Login]


class ShownLogin(BaseModel):
    token: SecretStr

    @field_serializer("token")
    def show(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Excluding(BaseModel):
    a: int
    b: int = Field(exclude=True)


@dataclass
class PlainLogin:
    token: SecretStr


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Login(name="Ada", token=SecretStr("x")), "result.token"),
        (Login(name="Ada", token=SecretBytes(b"x")), "result.token"),
        (
            Logins(logins=[Login(name="***"), Login(name="b", token=SecretStr("x"))]),
            "result.logins[1].token",
        ),
        ({"a": [PlainLogin(SecretStr("x"))]}, "result.a[0].token"),
    ],
)
def test_a_secret_of_pydantic_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(NotJsonError, match=r"runnel\.secret") as caught:
        encode_result(value)

    assert path in str(caught.value)


@pytest.mark.parametrize("value", [Login(name="***"), ShownLogin(token=SecretStr("x"))])
def test_a_secret_that_is_not_stored_as_stars_is_kept(value: BaseModel) -> None:
    stored = msgspec.json.decode(encode_result(value))

    assert type(value).model_validate(stored) == value


def test_a_required_field_that_is_excluded_is_refused() -> None:
    def make() -> Excluding:
        return Excluding(a=1, b=2)

    with pytest.raises(NotJsonError, match=r"result\.b"):
        encode_result(make(), compile_signature(make))
