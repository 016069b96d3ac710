"""Validation of workflows made in Python, size limits and child workflows."""

import re
from typing import Any

import pytest

from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.templates.nodes import INPUT_NODE, RESERVED_NAMES
from runnel.core.validation import (
    PROBLEMS_SHOWN_MAX,
    DefinitionLimits,
    build_graph,
    find_problems,
)
from runnel.core.validation.checks import RESERVED_NAME_ENDS
from runnel.core.validation.structure import CHILD_DEPTH_MAX
from runnel.core.workflow import Node, RateLimit, Workflow
from runnel.errors import InvalidWorkflowError


def node(name: str, *parents: str, handler: str = "h", **fields: Any) -> Node:
    dependencies = tuple(map(NodeId, parents))
    return Node(id=NodeId(name), handler=handler, dependencies=dependencies, **fields)


def workflow(*nodes: Node, **fields: Any) -> Workflow:
    return Workflow(**({"name": "w", "nodes": nodes} | fields))


def test_a_good_workflow_has_no_problems_and_becomes_a_graph() -> None:
    diamond = workflow(node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c"))

    assert find_problems(diamond) == []
    assert build_graph(diamond).layers() == [["a"], ["b", "c"], ["d"]]


def test_a_bad_workflow_is_refused_with_all_its_problems() -> None:
    bad = workflow(node("a", "a"), node("b", "x"), node("b"))

    with pytest.raises(InvalidWorkflowError) as caught:
        build_graph(bad)

    assert caught.value.problems == tuple(find_problems(bad))
    assert len(caught.value.problems) == 3
    assert str(caught.value).startswith("workflow 'w': 3 problems\n  - node 'b': more than one")


def test_a_workflow_without_nodes_is_refused() -> None:
    assert find_problems(workflow()) == ["nodes: expected at least one node, got none"]


@pytest.mark.parametrize("name", ["x-y", "1", "with space", "ünï", "a.b", "'", "x" * 200])
def test_any_printable_id_is_allowed_and_can_be_referenced(name: str) -> None:
    quote = '"' if "'" in name else "'"
    reader = node("reader", name, config={"x": f"{{{{ nodes[{quote}{name}{quote}].y }}}}"})

    assert find_problems(workflow(node(name), reader)) == []


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES - {INPUT_NODE}))
def test_reserved_names_are_refused_as_ids(name: str) -> None:
    (problem,) = find_problems(workflow(node(name)))

    assert problem == (
        f"node '{name}': the id is a reserved name of templates; choose another, such as "
        f"'{name}_node'"
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"operaton": "map"}, "config.operaton: the handler 'data_processor' has no such setting"),
        ({"data": [], "fields": ["a"]}, "config.operation: 'fields' beside data is a setting of"),
    ],
)
def test_a_forgotten_operation_is_refused(config: dict[str, Any], problem: str) -> None:
    (found,) = find_problems(workflow(node("a", handler="data_processor", config=config)))

    assert found.startswith(f"node 'a': {problem}")


@pytest.mark.parametrize(
    ("provider", "is_valid"),
    [
        (node("input", handler="input"), True),
        (node("input", handler="input", config={"default": 1}), False),
        (node("input", handler="input", for_each="{{ input.items }}"), False),
        (node("input", handler="output"), False),
    ],
)
def test_only_a_node_that_provides_the_input_is_called_input(
    provider: Node, is_valid: bool
) -> None:
    reader = node("a", "input", config={"x": "{{ input.x }}", "y": "{{ nodes['input'].y }}"})

    problems = find_problems(workflow(provider, reader))

    assert (problems == []) is is_valid
    assert is_valid or "only a node with the handler 'input'" in problems[0]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "a node's id: expected a printable text of 1 to 200 characters, got ''"),
        ("a\nb", r"a node's id: expected a printable text of 1 to 200 characters, got 'a\nb'"),
        (7, "a node's id: expected a printable text of 1 to 200 characters, got 7"),
        (None, "a node's id: expected a printable text of 1 to 200 characters, got null"),
        ("x" * 201, f"node '{'x' * 59}…': the id has 201 characters, at most 200 are allowed"),
    ],
)
def test_other_ids_are_refused(name: Any, problem: str) -> None:
    assert find_problems(workflow(node(name))) == [problem]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"timeout_seconds": 0}, "timeout_seconds: expected a number above 0, got 0"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds: expected a number above 0, got nan"),
        ({"timeout_seconds": None}, "timeout_seconds: expected a number above 0, got null"),
        (
            {"timeout_seconds": 10**400},
            f"timeout_seconds: expected a number above 0, got 1{'0' * 58}…",
        ),
        ({"soft_timeout_seconds": -1}, "soft_timeout_seconds: expected a number above 0, got -1"),
        ({"concurrency_limit": 0}, "concurrency_limit: expected a whole number ≥ 1, got 0"),
        ({"concurrency_limit": True}, "concurrency_limit: expected a whole number ≥ 1, got true"),
        ({"handler": ""}, "handler: expected a printable text of 1 to 200 characters, got ''"),
        ({"condition": " "}, "condition: expected a text that is not empty, got ' '"),
        (
            {"run_when": "x"},
            (
                "run_when: expected one of default, all_completed, none_failed, "
                "all_settled, one_failed, got 'x'"
            ),
        ),
        (
            {"config": {"x": {1}}},
            "config.x: expected a JSON value, got a Python set; turn it into text or a list",
        ),
        ({"config": {1: 2}}, "config: the key 1 is not a text; put it in quotes"),
        (
            {"config": {"\ud800": 2}},
            "config: half of a surrogate pair is not a character; remove it",
        ),
        (
            {"timeout_seconds": -(10**5000)},
            "timeout_seconds: expected a number above 0, got a number of thousands of digits",
        ),
        (
            {"retry": RetryPolicy(max_retries=-1)},
            "retry.max_retries: expected a whole number ≥ 0, got -1",
        ),
        (
            {"retry": RetryPolicy(initial_delay=-0.5)},
            "retry.initial_delay: expected a number ≥ 0, got -0.5",
        ),
        (
            {"retry": RetryPolicy(exponential_base=0)},
            "retry.exponential_base: expected a number ≥ 1, got 0",
        ),
    ],
)
def test_values_of_a_node_are_checked(fields: dict[str, Any], problem: str) -> None:
    assert find_problems(workflow(node("a", **fields))) == [f"node 'a': {problem}"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": ""}, "name: expected a printable text of 1 to 200 characters, got ''"),
        (
            {"name": "team/active"},
            "name: 'team/active' ends like an address of the API; expected a name that does not "
            "end with one of " + ", ".join(RESERVED_NAME_ENDS),
        ),
        ({"timeout_seconds": -1}, "timeout_seconds: expected a number above 0, got -1"),
        ({"sla_seconds": 0}, "sla_seconds: expected a number above 0, got 0"),
        ({"max_concurrency": 0}, "max_concurrency: expected a whole number ≥ 1, got 0"),
        ({"labels": {"a": 1}}, "labels: expected texts by name, got 'a': 1"),
        (
            {"output": {"x": b""}},
            "output.x: expected a JSON value, got a Python bytes; turn it into text or a list",
        ),
        (
            {"rate_limits": {"api": RateLimit(rate_per_second=0)}},
            "rate_limits.api.rate_per_second: expected a number above 0, got 0",
        ),
        (
            {"rate_limits": {"api": RateLimit(burst=0)}},
            "rate_limits.api.burst: expected a whole number ≥ 1, got 0",
        ),
    ],
)
def test_values_of_a_workflow_are_checked(fields: dict[str, Any], problem: str) -> None:
    assert find_problems(workflow(node("a"), **fields)) == [problem]


@pytest.mark.parametrize(
    "good",
    [
        workflow(node("a", resource_tag="the engine may have it")),
        workflow(node("a"), labels={"team": "a", "stage": ""}),
        workflow(node("a", config={"all": "{{ execution }}", "one": "{{ execution.labels.x }}"})),
    ],
    ids=["a tag without a limit", "labels", "the execution"],
)
def test_valid_values_are_accepted(good: Workflow) -> None:
    assert find_problems(good) == []


def test_the_output_of_a_workflow_may_name_any_node() -> None:
    assert find_problems(workflow(node("a"), node("b"), output="{{ a.x }} {{ b.y }}")) == []


def test_a_distant_ancestor_may_be_named() -> None:
    chain = [node("n0"), *(node(f"n{n}", f"n{n - 1}") for n in range(1, 50))]

    last = node("last", "n49", config={"x": "{{ n0.y }} {{ n25.y }}"}, condition="n48.ok")

    assert find_problems(workflow(*chain, last)) == []


def test_an_item_may_be_used_where_there_is_one() -> None:
    map_node = node(
        "a", for_each="input.list", config={"x": "{{ item.y }}"}, concurrency_key="{{ item.z }}"
    )

    assert find_problems(workflow(map_node)) == []


def test_one_cycle_is_reported_per_component_and_at_most_ten() -> None:
    pairs = [(f"a{n}", f"b{n}") for n in range(13)]
    nodes = [cycle_node for a, b in pairs for cycle_node in (node(a, b), node(b, a))]

    problems = find_problems(workflow(node("root"), *nodes))

    assert problems[0] == "cycle: a0 → b0 → a0; remove one of these dependencies"
    assert problems[9:] == [
        "cycle: a9 → b9 → a9; remove one of these dependencies",
        "cycle: 3 more cycles exist; first remove the cycles above",
    ]


def test_a_node_between_two_cycles_is_not_reported_as_part_of_one() -> None:
    nodes = [node("a", "b"), node("b", "a"), node("m", "b"), node("x", "m", "y"), node("y", "x")]

    assert find_problems(workflow(node("root"), *nodes)) == [
        "cycle: a → b → a; remove one of these dependencies",
        "cycle: x → y → x; remove one of these dependencies",
        "unreachable: 'm' can never start, because it depends on a cycle",
    ]


def test_a_node_on_a_cycle_gets_no_second_problem() -> None:
    nodes = [node("a", "b", config={"x": "{{ c }}"}), node("b", "a"), node("c")]

    assert find_problems(workflow(*nodes)) == ["cycle: a → b → a; remove one of these dependencies"]


def test_a_long_cycle_is_shortened_in_the_middle() -> None:
    ring = [node(f"n{n}", f"n{(n - 1) % 1000}") for n in range(1000)]

    assert find_problems(workflow(*ring))[0] == (
        "cycle: n0 → n1 → n2 → n3 → n4 → n5 → … (989 more) … → n995 → n996 → n997 → n998 → n999 "
        "→ n0; remove one of these dependencies"
    )


def test_too_many_nodes_or_bytes_are_refused() -> None:
    limits = DefinitionLimits(nodes_max=2, definition_bytes=200, definition_bytes_per_node=1)

    assert find_problems(workflow(node("a"), node("b")), limits=limits) == []
    assert find_problems(workflow(node("a"), node("b"), node("c")), limits=limits) == [
        "the workflow has 3 nodes, at most 2 are allowed; split it"
    ]
    (problem,) = find_problems(workflow(node("a", config={"x": "y" * 300})), limits=limits)
    assert re.fullmatch(
        r"the definition has 3\d\d bytes, at most 201 are allowed for 1 nodes; pass large values "
        "as input, or split it",
        problem,
    )


@pytest.mark.parametrize(("nodes", "node_bytes"), [(1, 900_000), (4_000, 900)])
def test_a_definition_has_room_for_a_thousand_bytes_per_node(nodes: int, node_bytes: int) -> None:
    large = [node(f"n{n}", config={"x": "y" * node_bytes}) for n in range(nodes)]

    assert find_problems(workflow(*large)) == []


def test_a_definition_that_redis_cannot_store_is_refused() -> None:
    limits = DefinitionLimits(definition_bytes_max=300)

    (problem,) = find_problems(workflow(node("a", config={"x": "y" * 300})), limits=limits)

    assert "at most 300 are allowed" in problem


def nested(depth: int) -> Workflow:
    inner = workflow(node("last"))
    for _ in range(depth):
        inner = workflow(node("a", handler="workflow", child=inner))
    return inner


def test_child_workflows_are_checked_too() -> None:
    inner = workflow(node("x", "nowhere"))
    middle = workflow(node("m", handler="workflow", child=inner))

    (problem,) = find_problems(workflow(node("a", handler="workflow", child=middle)))
    assert problem == (
        "node 'a' → child: node 'm' → child: node 'x': it depends on 'nowhere', but there is no "
        "such node; there are: 'x'"
    )


def test_child_workflows_nest_twenty_deep_and_no_deeper() -> None:
    assert find_problems(nested(CHILD_DEPTH_MAX)) == []
    assert find_problems(nested(CHILD_DEPTH_MAX + 1)) == [
        "child workflows are nested 21 levels deep, at most 20 are allowed"
    ]


def test_children_that_double_at_every_level_are_counted_without_walking_them() -> None:
    inner = workflow(node("last"))
    for _ in range(CHILD_DEPTH_MAX):
        pair = (node(name, handler="workflow", child=inner) for name in "ab")
        inner = workflow(*pair)

    assert find_problems(inner) == [
        "the workflow has 3,145,726 nodes, at most 1,000,000 are allowed; split it"
    ]


def test_a_child_belongs_to_the_handler_workflow() -> None:
    child = workflow(node("x"))

    assert find_problems(workflow(node("a", child=child), node("b", handler="workflow"))) == [
        (
            "node 'a': child: only the handler 'workflow' runs a child workflow, this node's "
            "handler is 'h'"
        ),
        "node 'b': config: the handler 'workflow' needs a workflow to run: add definition or file",
    ]


@pytest.mark.slow
def test_above_a_hundred_problems_the_last_sentence_says_so() -> None:
    problems = find_problems(workflow(*(node(f"n{n}", "x") for n in range(100_000))))

    assert len(problems) == PROBLEMS_SHOWN_MAX + 1
    assert problems[-1] == "there are more than 100 problems; fix these first"


def test_a_list_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless += [endless, endless]

    problems = find_problems(workflow(node("a", config={"x": endless})))

    assert all("nested too deeply" in problem for problem in problems)
    assert problems


@pytest.mark.parametrize("name", ["concurrency_key", "resource_tag", "queue"])
def test_fields_without_effect_are_refused(name: str) -> None:
    nap = node("nap", handler="sleep", config={"seconds": 1}, **{name: "x"})

    assert find_problems(workflow(nap)) == [
        (
            f"node 'nap': {name}: no worker runs the handler 'sleep', so this field would have no "
            "effect; remove it"
        )
    ]


def test_the_error_for_a_misplaced_time_limit_says_where_it_belongs() -> None:
    wait = node("ok", handler="wait_for_signal", config={"signal": "s"}, timeout_seconds=5)

    assert find_problems(workflow(wait)) == [
        (
            "node 'ok': timeout_seconds: no worker runs the handler 'wait_for_signal', so "
            "this field would have no effect; put it into the config"
        )
    ]
