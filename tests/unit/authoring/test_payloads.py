"""Values that callers pass are checked: they can be stored, or are refused with a sentence."""

from math import inf, nan
from typing import Any

import msgspec
import pytest

from runnel.authoring import payloads
from runnel.authoring.payloads import (
    REASON_CHARS_MAX,
    check_labels,
    check_text,
    encode_payload,
    shorten_reason,
)
from runnel.errors import PayloadError


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"v": object()}, r"input: the value is not JSON: .*object"),
        (cyclic(), "input: the value is nested too deeply, or contains itself"),
        (nested(100_000), "input: the value is nested too deeply, or contains itself"),
        (
            {"v": "\ud800"},
            "input: the text contains half of a surrogate pair, which is not a character",
        ),
        (
            {"\ud800": 1},
            "input: the text contains half of a surrogate pair, which is not a character",
        ),
        (inf, "input: JSON has no NaN or infinity; use a text or null"),
        ({"v": [1.5, {"deep": nan}], "w": nan}, r"input\.v\[1\]\.deep: JSON has no NaN"),
        ({"v": (0.5, nan)}, r"input\.v\[1\]: JSON has no NaN"),
        ({"v": {-inf}}, r"input\.v\[0\]: JSON has no NaN"),
        ({"none": None, "big": 2**70, "v": -inf}, r"input\.v: JSON has no NaN"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_that_json_cannot_represent_is_refused_with_its_path(
    value: Any, sentence: str
) -> None:
    with pytest.raises(PayloadError, match=sentence):
        encode_payload(value, where="input")


@pytest.mark.parametrize(
    "value", [None, {"v": None, "w": 0.1, "x": 2**70}, {"v": "null"}, ["\u00cb\u7ff0", None, -0.0]]
)
def test_nulls_and_ordinary_numbers_are_encoded(value: Any) -> None:
    assert msgspec.json.decode(encode_payload(value, where="input")) == value


def test_a_value_without_null_is_not_searched_for_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "find_non_finite", lambda *_: "looked")

    assert encode_payload({"v": [1.5, "text", True]}, where="input") == b'{"v":[1.5,"text",true]}'


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ({f"k{i}": "v" for i in range(65)}, "labels: expected at most 64 labels, got 65"),
        ({"k" * 101: "v"}, "the key of a label: expected 1 to 100 characters, got 101"),
        ({"": "v"}, "the key of a label: expected 1 to 100 characters, got 0"),
        ({"k": "v" * 1_001}, "label 'k': expected 0 to 1,000 characters, got 1,001"),
        ({"runnel.k": "v" * 5_001}, "label 'runnel.k': expected 0 to 5,000 characters, got 5,001"),
        ({"k": 1}, "label 'k': expected a text, got 1"),
        ({1: "v"}, "the key of a label: expected a text, got 1"),
        (
            {"k": "\ud800"},
            "label 'k': the text contains half of a surrogate pair, which is not a character",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_labels_over_the_limits_are_refused(labels: dict[str, str], sentence: str) -> None:
    with pytest.raises(PayloadError, match=sentence):
        check_labels(labels)


@pytest.mark.parametrize("text", ["", "n" * 501, 7, None, "\ud800"])
def test_a_text_over_the_limits_is_refused(text: Any) -> None:
    with pytest.raises(PayloadError, match="the name: "):
        check_text(text, "the name", chars_max=500)


@pytest.mark.parametrize("length", [0, 10, REASON_CHARS_MAX])
def test_a_reason_within_the_limit_is_kept(length: int) -> None:
    assert shorten_reason("y" * length) == "y" * length


def test_a_long_reason_is_cut_with_an_ellipsis() -> None:
    assert shorten_reason("y" * 2_001) == "y" * 1_999 + "…"


@pytest.mark.parametrize("reason", [7, "\ud800"])
def test_a_reason_that_is_not_text_is_refused(reason: Any) -> None:
    with pytest.raises(PayloadError, match="the reason: "):
        shorten_reason(reason)
