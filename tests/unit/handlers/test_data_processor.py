"""The operations of data_processor, and the errors for wrong settings."""

from typing import Any

import pytest

from runnel.core.validation.handler_settings import OPERATION_SETTINGS
from runnel.errors import InputError
from runnel.handlers.data_processor import ITEMS_ON_LOOP_MAX, OPERATION_FUNCTIONS, plan, process

ORDERS = [
    {"id": 1, "total": 30, "paid": True, "by": {"city": "Bonn"}},
    {"id": 2, "total": 10, "paid": False, "by": {"city": "Rome"}},
    {"id": 3, "total": 20, "paid": True, "by": {"city": "Bonn"}},
]

GOOD: list[tuple[dict[str, Any], Any]] = [
    ({"operation": "pick", "data": ORDERS[0], "fields": ["id"]}, {"id": 1}),
    (
        {"operation": "pick", "data": ORDERS[:2], "fields": {"where": "by.city"}},
        [{"where": "Bonn"}, {"where": "Rome"}],
    ),
    (
        {"operation": "pick", "data": {"a": 1}, "fields": ["a", "b"], "missing": "null"},
        {"a": 1, "b": None},
    ),
    ({"operation": "pick", "data": {"a": 1}, "fields": ["a", "b"], "missing": "omit"}, {"a": 1}),
    ({"operation": "map", "data": ORDERS, "field": "total"}, [30, 10, 20]),
    ({"operation": "map", "data": [[1, 2], [3]], "field": "1", "missing": "null"}, [2, None]),
    ({"operation": "map", "data": [{"a": 1}, {}], "field": "a", "missing": "omit"}, [1]),
    (
        {"operation": "map", "data": [{"a": 1}], "fields": {"b": "a"}, "set": {"c": 2}},
        [{"b": 1, "c": 2}],
    ),
    (
        {"operation": "filter", "data": [1, 5, 3], "op": ">=", "value": 3},
        [5, 3],
    ),
    (
        {"operation": "filter", "data": ORDERS, "field": "by.city", "value": "Rome"},
        [ORDERS[1]],
    ),
    (
        {
            "operation": "filter",
            "data": ORDERS,
            "where": [
                {"field": "paid", "value": False},
                {"field": "total", "op": ">", "value": 25},
            ],
            "match": "any",
        },
        [ORDERS[0], ORDERS[1]],
    ),
    ({"operation": "filter", "data": [{"a": 1}, {}], "field": "a", "op": "exists"}, [{"a": 1}]),
    ({"operation": "filter", "data": [{"a": 1}, {}], "field": "a", "op": "missing"}, [{}]),
    ({"operation": "filter", "data": ["ab", "c"], "op": "contains", "value": "b"}, ["ab"]),
    ({"operation": "filter", "data": [1, 2], "op": "not_in", "value": [2]}, [1]),
    ({"operation": "merge", "data": [{"a": 1, "b": 1}, {"b": 2}]}, {"a": 1, "b": 2}),
    (
        {"operation": "merge", "data": [{"a": {"x": 1}}, {"a": {"y": 2}}], "deep": True},
        {"a": {"x": 1, "y": 2}},
    ),
    ({"operation": "merge", "data": [[1], [], [2, 3]]}, [1, 2, 3]),
    ({"b": {"x": 1}, "c": [2]}, {"b": {"x": 1}, "c": [2]}),
    ({"operation": "merge", "data": []}, {}),
    ({"operation": "aggregate", "data": ORDERS, "function": "sum", "field": "total"}, 60),
    ({"operation": "aggregate", "data": [1, 2], "function": "avg"}, 1.5),
    ({"operation": "aggregate", "data": [], "function": "avg"}, None),
    ({"operation": "aggregate", "data": [3, 1, 3], "function": "unique"}, [3, 1]),
    (
        {
            "operation": "aggregate",
            "data": ORDERS,
            "aggregates": {"n": {"function": "count"}, "top": {"function": "max", "field": "id"}},
        },
        {"n": 3, "top": 3},
    ),
    ({"operation": "sort", "data": [3, 1, 2]}, [1, 2, 3]),
    (
        {"operation": "sort", "data": ORDERS, "by": ["by.city", "total"], "descending": True},
        [ORDERS[1], ORDERS[0], ORDERS[2]],
    ),
    ({"operation": "sort", "data": []}, []),
    (
        {"operation": "group", "data": ORDERS, "by": "paid"},
        {"true": [ORDERS[0], ORDERS[2]], "false": [ORDERS[1]]},
    ),
    (
        {
            "operation": "group",
            "data": ORDERS,
            "by": "by.city",
            "aggregates": {"sum": {"function": "sum", "field": "total"}},
        },
        {"Bonn": {"sum": 50}, "Rome": {"sum": 10}},
    ),
]


@pytest.mark.parametrize(("config", "expected"), GOOD)
def test_an_operation_returns_the_documented_result(config: dict[str, Any], expected: Any) -> None:
    assert process(config) == expected


BAD: list[tuple[dict[str, Any], str]] = [
    ({"operation": "explode", "data": []}, "got 'explode'"),
    (
        {"operation": "pick", "fields": ["a"]},
        "config.data: the handler 'data_processor' needs this",
    ),
    ({"operation": "pick", "data": {}, "by": "x"}, "has no setting 'by'; expected fields, missing"),
    ({"operation": "pick", "data": {}, "fields": []}, "expects fields to be a list of paths"),
    ({"operation": "pick", "data": {}, "fields": {"a": 1}}, "expects fields.a to be a path"),
    ({"operation": "pick", "data": {"b": 1}, "fields": ["a"]}, "no 'a' in data; the object has: b"),
    ({"operation": "pick", "data": [{}], "fields": ["a"]}, "no 'a' in item 0"),
    ({"operation": "pick", "data": 3, "fields": ["a"]}, "expects data to be a list, got int 3"),
    ({"operation": "pick", "data": {}, "fields": ["a"], "missing": "x"}, "error, null, omit"),
    ({"operation": "map", "data": []}, "exactly one of field and fields"),
    ({"operation": "map", "data": [], "field": "a", "set": {}}, "set only together with fields"),
    ({"operation": "map", "data": [], "fields": ["a"], "set": 1}, "set to be an object"),
    ({"operation": "map", "data": [1], "field": "a"}, "no 'a' in item 0"),
    ({"operation": "map", "data": [[1]], "field": "--1"}, "no '--1' in item 0"),
    ({"operation": "map", "data": [[1]], "field": "²"}, "no '²' in item 0"),
    ({"operation": "map", "data": [[1]], "field": "9" * 5_000}, "in item 0"),
    ({"operation": "filter", "data": [], "op": "~", "value": 1}, "got '~'"),
    ({"operation": "filter", "data": [], "op": ["<"], "value": 1}, "got ['<']"),
    ({"operation": "filter", "data": [], "op": "<"}, "needs a value for the comparison '<'"),
    ({"operation": "filter", "data": ["a"], "op": "<", "value": 1}, "can't compare str 'a' <"),
    ({"operation": "filter", "data": [], "where": []}, "where to be a list of conditions"),
    ({"operation": "filter", "data": [], "where": [1]}, "a condition to be an object"),
    ({"operation": "filter", "data": [], "where": [{"x": 1}]}, "in a condition, got 'x'"),
    ({"operation": "filter", "data": [], "where": [{}], "op": "<"}, "either where, or field"),
    ({"operation": "filter", "data": [], "value": 1, "match": "some"}, "match to be all or any"),
    ({"operation": "filter", "data": [], "value": 1, "match": []}, "match to be all or any"),
    ({"operation": "merge", "data": [{}, []]}, "item 1 is list"),
    ({"operation": "merge", "data": [], "deep": "yes"}, "deep to be true or false"),
    ({"operation": "aggregate", "data": [], "function": "median"}, "got 'median'"),
    ({"operation": "aggregate", "data": ["a"], "function": "sum"}, "str 'a' is not a number"),
    ({"operation": "aggregate", "data": [1, "a"], "function": "max"}, "can't compute max"),
    ({"operation": "aggregate", "data": [10**400], "function": "avg"}, "can't compute avg"),
    ({"operation": "aggregate", "data": [10**400, 0.5], "function": "sum"}, "can't compute sum"),
    (
        {"operation": "aggregate", "data": [], "function": "sum", "aggregates": {}},
        "either aggregates, or function",
    ),
    ({"operation": "aggregate", "data": [], "aggregates": []}, "aggregates to be an object"),
    ({"operation": "sort", "data": [1, "a"]}, "got number and str"),
    ({"operation": "sort", "data": [{}]}, "got dict"),
    ({"operation": "sort", "data": [], "by": [1]}, "by to be a path or a list"),
    ({"operation": "group", "data": []}, "expects by to be a path"),
    ({"operation": "group", "data": [{"a": []}], "by": "a"}, "to be plain, got list"),
]


@pytest.mark.parametrize(("config", "sentence"), BAD)
def test_a_wrong_setting_is_refused_with_one_sentence(
    config: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        process(*plan(config).positional)

    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("deep", [False, True])
def test_merging_takes_time_proportional_to_the_data(deep: bool) -> None:
    """A copy per object took ten seconds for this many objects."""
    parts = [{str(number): {"n": number}} for number in range(50_000)]

    merged = process({"operation": "merge", "data": parts, "deep": deep})

    assert len(merged) == len(parts)
    assert merged["49999"] == {"n": 49_999}


def test_a_deep_merge_does_not_change_its_input() -> None:
    first, second = {"a": {"b": {"c": 1}}, "x": 1}, {"a": {"b": {"d": 2}}, "x": {"y": 3}}

    merged = process({"operation": "merge", "data": [first, second, {"x": {"z": 4}}], "deep": True})

    assert merged == {"a": {"b": {"c": 1, "d": 2}}, "x": {"y": 3, "z": 4}}
    assert (first, second) == (
        {"a": {"b": {"c": 1}}, "x": 1},
        {"a": {"b": {"d": 2}}, "x": {"y": 3}},
    )


def test_the_operations_equal_those_that_validation_knows() -> None:
    assert set(OPERATION_FUNCTIONS) == set(OPERATION_SETTINGS)


def test_many_items_are_processed_in_a_thread() -> None:
    few = plan({"operation": "sort", "data": [1]})
    many = plan({"operation": "sort", "data": [1] * (ITEMS_ON_LOOP_MAX + 1)})

    assert [few.mode, many.mode] == ["loop", "thread"]
