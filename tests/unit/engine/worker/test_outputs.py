"""Which results a handler may return, and the errors for those it may not."""

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import types
import uuid
from typing import Any

import msgspec
import pytest

from runnel.engine.worker.outputs import NotJsonError, describe_exception, encode_result


@dataclasses.dataclass
class Point:
    x: int


class Model:
    """Has the interface of a pydantic model."""

    def __init__(self, when: dt.date) -> None:
        self._when = when

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"when": self._when.isoformat(), "mode": mode}


class Color(enum.Enum):
    RED = "red"


class Scalar:
    """Has the interface of a numpy scalar or array."""

    dtype = "float64"

    def __init__(self, value: Any, shape: tuple[int, ...] = ()) -> None:
        self._value = value
        self.shape = shape

    def item(self) -> Any:
        return self._value

    def tolist(self) -> Any:
        return self._value


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, None),
        ({"a": [1, 2.5, "x", True, None]}, {"a": [1, 2.5, "x", True, None]}),
        (Point(3), {"x": 3}),
        ([Model(when=dt.date(2026, 1, 2))], [{"when": "2026-01-02", "mode": "json"}]),
        (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00Z"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (Color.RED, "red"),
        ({1: "one"}, {"1": "one"}),
        ({3}, [3]),
        (pathlib.Path("/tmp/x"), "/tmp/x"),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Scalar(1.5), 1.5),
        (Scalar([1, 2], shape=(2,)), [1, 2]),
        (2**70, 2**70),
        ([2**70, None], [2**70, None]),
        ("a text that says null", "a text that says null"),
    ],
)
def test_a_result_is_stored_as_json(result: Any, expected: Any) -> None:
    assert msgspec.json.decode(encode_result(result)) == expected


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        pytest.param(object(), "it holds a builtins.object", id="object"),
        ({"f": open}, "it holds a builtins.builtin_function_or_method"),
        ({(1, 2): 3}, "keys must be"),
        ({None: 3}, "keys must be"),
        ({"a": [1, float("nan")]}, r"result\.a\[1\] is nan"),
        (float("-inf"), "result is -inf"),
        ([float("inf"), None, 1.5], r"result\[0\] is inf"),
        ([None, 2**70, Scalar(float("inf"))], r"result\[2\] is inf"),
        ("\ud800", "surrogates"),
    ],
)
def test_results_that_json_can_not_represent_are_refused(result: Any, sentence: str) -> None:
    with pytest.raises(NotJsonError, match=sentence) as caught:
        encode_result(result)

    info = describe_exception(caught.value)
    assert "TypeError" in info.types
    assert info.retryable is False


def test_a_result_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(NotJsonError):
        encode_result(loop)
