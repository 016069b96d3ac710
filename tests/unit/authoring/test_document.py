"""Reading documents: aliases, short forms and inferred dependencies."""

from typing import Any

import pytest

from runnel.authoring.documents import read_document
from runnel.authoring.documents.fields import PROBLEMS_MAX
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen
from runnel.core.workflow import (
    Node,
    OnFailure,
    RateLimit,
    Workflow,
    decode_workflow,
    encode_workflow,
    hash_workflow,
)
from runnel.errors import InvalidWorkflowError


def read(*nodes: Any, **own: Any) -> Workflow:
    return read_document({"name": "w", "nodes": list(nodes), **own})


def read_a(**fields: Any) -> Node:
    """Returns the node of a document with one node."""
    return read({"id": "a", "handler": "h", **fields}).nodes[0]


COMPLETE: dict[str, Any] = {
    "name": "report",
    "version": "2024.1",
    "input": {"type": "object"},
    "on_failure": "continue",
    "timeout_seconds": 60,
    "sla_seconds": 30,
    "max_concurrency": 4,
    "priority": -5,
    "labels": {"team": "data", "tier": 1},
    "rate_limits": {"api": {"rate_per_second": 5, "burst": 2}},
    "output": "{{ a.x }}",
    "nodes": [
        {
            "id": "a",
            "handler": "h",
            "config": {"x": 1},
            "dependencies": [],
            "condition": "input.go",
            "run_when": "all_settled",
            "retry": {"max_retries": 1, "no_retry_on": ["KeyError"]},
            "timeout_seconds": 10,
            "soft_timeout_seconds": 5,
            "resource_tag": "api",
            "concurrency_key": "{{ input.user }}",
            "concurrency_limit": 2,
            "for_each": "input.list",
            "queue": "gpu",
        }
    ],
}


def test_every_key_of_a_document_reaches_the_model() -> None:
    workflow = read_document(COMPLETE)

    assert workflow == Workflow(
        name="report",
        input={"type": "object"},
        on_failure=OnFailure.CONTINUE,
        timeout_seconds=60.0,
        sla_seconds=30.0,
        max_concurrency=4,
        priority=-5,
        labels={"team": "data", "tier": "1"},
        rate_limits={"api": RateLimit(rate_per_second=5.0, burst=2)},
        output="{{ a.x }}",
        nodes=(
            Node(
                id="a",  # type: ignore[arg-type]  # a plain string, for the comparison
                handler="h",
                config={"x": 1},
                condition="input.go",
                run_when=RunWhen.ALL_SETTLED,
                retry=RetryPolicy(max_retries=1, no_retry_on=("KeyError",)),
                timeout_seconds=10.0,
                soft_timeout_seconds=5.0,
                resource_tag="api",
                concurrency_key="{{ input.user }}",
                concurrency_limit=2,
                for_each="input.list",
                queue="gpu",
            ),
        ),
    )


def test_aliases_of_keys_give_an_equal_workflow() -> None:
    ours = read({"id": "a", "handler": "h"}, {"id": "b", "handler": "h", "dependencies": ["a"]})

    theirs = read(
        {"node_id": "a", "handler": "h"},
        {"node_id": "b", "handler": "h", "depends_on": "a", "retry_config": {"max_retries": 3}},
    )

    assert theirs == ours


def test_nodes_may_be_an_object_by_id() -> None:
    document = {"name": "w", "nodes": {"a": {"handler": "h"}, "b": {"id": "b", "handler": "h"}}}

    assert [node.id for node in read_document(document).nodes] == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, RetryPolicy(max_retries=5)),
        (0, RetryPolicy(max_retries=0)),
        (False, RetryPolicy(max_retries=0)),
        ({}, RetryPolicy()),
        (None, RetryPolicy()),
        ({"retry_on": "IOError"}, RetryPolicy(retry_on=("IOError",))),
    ],
)
def test_retry_has_short_forms(value: Any, expected: RetryPolicy) -> None:
    assert read_a(retry=value).retry == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("input.list", "input.list"),
        ("{{ input.list }}", "{{ input.list }}"),
        ([], "[]"),
        ([1, "a'\"\n", None, True, {"k": [1.5]}], '[1, "a\'\\"\\n", none, true, {"k": [1.5]}]'),
        ({"items": "input.list"}, "input.list"),
        ({"items": [1]}, "[1]"),
    ],
)
def test_for_each_takes_an_expression_or_a_list(value: Any, expected: str) -> None:
    assert read_a(for_each=value).for_each == expected


@pytest.mark.parametrize(("value", "expected"), [(True, "true"), (False, "false"), ("x.y", "x.y")])
def test_a_condition_may_be_a_plain_boolean(value: Any, expected: str) -> None:
    assert read_a(condition=value).condition == expected


def test_dependencies_are_inferred_from_every_field_with_templates() -> None:
    other_nodes = [{"id": name, "handler": "h"} for name in ("a", "b", "c", "x-y", "unused")]

    workflow = read(
        {
            "id": "last",
            "handler": "h",
            "config": {"deep": [{"x": "{{ b.z }} and {{ nodes['x-y'].q }}"}]},
            "condition": "a.ok and input.b",
            "for_each": "c.list",
            "concurrency_key": "{{ b.user }}",
        },
        *other_nodes,
    )

    assert workflow.nodes[0].dependencies == ("a", "b", "c", "x-y")


def test_explicit_dependencies_replace_inferred_ones() -> None:
    workflow = read(
        {"id": "a", "handler": "h"},
        {"id": "b", "handler": "h", "config": {"x": "{{ a.y }}"}, "dependencies": []},
        {"id": "c", "handler": "h", "config": {"x": "{{ a.y }}"}, "dependencies": None},
    )

    assert [node.dependencies for node in workflow.nodes] == [(), (), ("a",)]


def test_a_child_without_a_name_gets_the_id_of_its_node() -> None:
    definition = {"nodes": [{"id": "x", "handler": "h"}]}

    node = read_a(handler="workflow", config={"definition": definition, "input": {"n": 1}})

    assert node.child is not None
    assert node.child.name == "a"
    assert node.config == {"input": {"n": 1}}


def test_a_stated_default_does_not_change_the_hash() -> None:
    short = read({"id": "a", "handler": "h"})

    long = read(
        {
            "id": "a",
            "handler": "h",
            "config": {},
            "dependencies": [],
            "condition": None,
            "run_when": "default",
            "retry": {"max_retries": 3, "initial_delay": 1, "max_delay": 60, "jitter": True},
            "timeout_seconds": 300,
            "concurrency_limit": 1,
        },
        version=7,
        on_failure="fail_fast",
        labels={},
        rate_limits={},
    )

    assert long == short
    assert hash_workflow(long) == hash_workflow(short)


def test_a_workflow_from_a_document_is_equal_after_storage() -> None:
    workflow = read({"id": "a", "handler": "h", "timeout_seconds": 30, "retry": 2}, sla_seconds=5)

    assert decode_workflow(encode_workflow(workflow)) == workflow


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"x": {1, 2}}, "expected a JSON value, got a Python set; turn it into text or a list"),
        ({"x": b"y"}, "expected a JSON value, got a Python bytes; turn it into text or a list"),
        ({"x": (1,)}, "expected a JSON value, got a Python tuple; turn it into text or a list"),
        ({"x": {3: 4}}, "the key 3 is not a text; put it in quotes"),
        ({"x": "\ud800"}, "half of a surrogate pair is not a character; remove it"),
    ],
)
def test_data_that_is_not_json_is_refused(config: Any, problem: str) -> None:
    with pytest.raises(InvalidWorkflowError) as caught:
        read_a(config=config)

    assert caught.value.problems == (f"nodes[0].config.x: {problem}",)


def test_reading_stops_after_a_hundred_problems() -> None:
    with pytest.raises(InvalidWorkflowError) as caught:
        read(*({"id": f"n{n}"} for n in range(10_000)))

    assert len(caught.value.problems) == PROBLEMS_MAX + 1
    assert caught.value.problems[-1] == ("there are more than 100 problems; fix these first")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, RetryPolicy(max_retries=7, initial_delay=0.5)),
        ({"retry": 2}, RetryPolicy(max_retries=2, initial_delay=0.5)),
        ({"retry": {"max_delay": 9}}, RetryPolicy(max_retries=7, initial_delay=0.5, max_delay=9.0)),
        ({"retry": {"max_retries": 3}}, RetryPolicy(initial_delay=0.5)),
        ({"retry": False}, RetryPolicy(max_retries=0, initial_delay=0.5)),
    ],
)
def test_retry_settings_that_a_node_leaves_out_come_from_the_default(
    said: dict[str, Any], expected: RetryPolicy
) -> None:
    child = {"nodes": [{"id": "b", "handler": "output", **said}]}
    document = {
        "name": "w",
        "nodes": [
            {"id": "a", "handler": "output", **said},
            {"id": "c", "handler": "workflow", "config": {"definition": child}},
        ],
    }

    workflow = read_document(document, retry=RetryPolicy(max_retries=7, initial_delay=0.5))

    assert workflow.nodes[0].retry == expected
    assert workflow.nodes[1].child is not None
    assert workflow.nodes[1].child.nodes[0].retry == expected
