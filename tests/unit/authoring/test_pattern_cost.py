"""A pattern that may take long is refused, or is applied to short texts only."""

import re
import time

import pytest

from runnel.authoring.input_schema import find_schema_problems, find_value_problems
from runnel.authoring.pattern_cost import estimate_cost

LIMIT_S = 1.0


@pytest.mark.parametrize(
    "pattern",
    [
        r"^(a+)+$",
        r"^(a*)*$",
        r"(x+x+)+y",
        r"^(a|aa)+$",
        r"^(a|ab|b)*$",
        r"^(\w+\s?)*$",
        r"^(\s*\w+\s*)*$",
        r"^([a-z]+)*[0-9]$",
        r"^(a?b?)*$",
        r"^((a+){1,50})$",
        r"^(.*,)+$",
        r"(?i)^(ab|AB)*$",
        r"^(?=(a+)+$)",
        r"^([a-zA-Z0-9]+\.?)+$",
        r"a*a*a*a*a*a*b",
    ],
)
def test_a_pattern_that_takes_exponential_time_is_refused(pattern: str) -> None:
    assert estimate_cost(pattern).problem is not None
    (problem,) = find_schema_problems({"properties": {"x": {"pattern": pattern}}})
    assert pattern in problem


@pytest.mark.parametrize(
    ("pattern", "chars_max"),
    [
        (r"^[a-z]+$", None),
        (r"^[a-z0-9]+(-[a-z0-9]+)*$", None),
        (r"^([a-z]+\.)*[a-z]+$", None),
        (r"^(foo|bar|baz)+$", None),
        (r"^[^@ ]+@[^@ ]+\.[^@ ]+$", 4_000),
        (r"^([a-f0-9]{32},)*$", None),
        (r"^([a-f0-9]{4})+$", None),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", None),
        (r"^\d{4}-\d{2}-\d{2}$", None),
        (r"^(\d{1,3}\.){3}\d{1,3}$", None),
        (r"^\s*\w+\s*(,\s*\w+\s*)*$", 4_000),
        (r"[a-z]+", 4_000),
        (r"^a*a*a*b", 400),
        (r"^(19|20)\d\d$", None),
    ],
)
def test_a_pattern_that_is_fast_is_accepted(pattern: str, chars_max: int | None) -> None:
    assert estimate_cost(pattern) == (chars_max, None)
    assert find_schema_problems({"properties": {"x": {"pattern": pattern}}}) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [(r"^(a+)+$", "a" * 30 + "!"), (r"^a*a*a*b", "a" * 5_000), (r"a+$", "a" * 100_000 + "!")],
)
@pytest.mark.parametrize("is_name", [False, True])
def test_a_text_that_is_too_long_for_a_slow_pattern_is_refused(
    pattern: str, text: str, is_name: bool
) -> None:
    schema: dict[str, object] = {"properties": {"x": {"pattern": pattern}}}
    value: object = {"x": text}
    if is_name:
        schema = {"patternProperties": {pattern: {}}, "additionalProperties": False}
        value = {text: 1}
    began = time.process_time()

    (problem, *_) = find_value_problems(schema, value, where="input")

    assert "characters" in problem
    assert time.process_time() - began < LIMIT_S


@pytest.mark.parametrize("pattern", [r"^a*a*b", r"^a*a*a*b", r"^a*a*a*a*b", r"^a*a*a*a*a*b"])
def test_the_longest_text_of_a_pattern_takes_less_than_a_second(pattern: str) -> None:
    chars_max = estimate_cost(pattern).chars_max
    assert chars_max is not None
    began = time.process_time()

    assert not re.search(pattern, "a" * chars_max)
    assert time.process_time() - began < LIMIT_S
