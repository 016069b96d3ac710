"""Validation of any graph: it never raises, finds each cycle, and judges ancestors correctly."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runnel.core.ids import NodeId
from runnel.core.retry import RetryPolicy
from runnel.core.validation import build_graph, find_problems
from runnel.core.workflow import Node, Workflow

Edges = dict[str, set[str]]
"""Parents by node."""

NAMES = [f"n{number}" for number in range(12)]


def workflow_of(edges: Edges, **fields: Any) -> Workflow:
    nodes = (
        Node(id=NodeId(name), handler="h", dependencies=tuple(map(NodeId, sorted(parents))))
        for name, parents in edges.items()
    )
    return Workflow(name="w", nodes=tuple(nodes), **fields)


@st.composite
def acyclic(draw: st.DrawFn, *, least: int = 1) -> Edges:
    """Draws nodes whose parents are among the names drawn before, then shuffles them."""
    count = draw(st.integers(least, len(NAMES)))
    names = draw(st.permutations(NAMES))[:count]
    edges = {
        name: draw(st.sets(st.sampled_from(names[:at]), max_size=4)) if at else set()
        for at, name in enumerate(names)
    }
    return {name: edges[name] for name in draw(st.permutations(names))}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.text() | st.integers(), below, max_size=3)
        | st.tuples(below)
    ),
    max_leaves=8,
)
templates = st.sampled_from(
    [
        "{{ n1.x }}",
        "{{ n2 }}",
        "{{ item }}",
        "{{ nodes['n3'].y }}",
        "{{",
        "{{ secrets.x }}",
        "a >",
        "-",
    ]
)
any_text = st.sampled_from([*NAMES, "input", "", "x-y", "zzz"]) | st.text(max_size=5)


@st.composite
def careless_node(draw: st.DrawFn) -> Node:
    """Draws any node that Python allows a user to write, sensible or not."""
    return Node(
        id=NodeId(draw(any_text)),
        handler=draw(st.sampled_from(["h", "sleep", "wait_for_signal", "workflow", "python", ""])),
        config=draw(st.dictionaries(st.text(max_size=3), anything | templates, max_size=3)),
        dependencies=tuple(map(NodeId, draw(st.lists(any_text, max_size=4)))),
        condition=draw(st.none() | templates | st.text(max_size=9)),
        for_each=draw(st.none() | templates),
        concurrency_key=draw(st.none() | templates),
        retry=RetryPolicy(max_retries=draw(st.integers()), initial_delay=draw(st.floats())),
        timeout_seconds=draw(st.floats() | st.integers()),
        soft_timeout_seconds=draw(st.none() | st.floats()),
    )


@settings(deadline=None)
@given(st.lists(careless_node(), max_size=8), anything | templates)
def test_any_workflow_is_accepted_or_answered_with_problems(nodes: list[Node], output: Any) -> None:
    workflow = Workflow(name="w", nodes=tuple(nodes), output=output)

    problems = find_problems(workflow)

    assert all(problem and problem.isprintable() for problem in problems)
    if not problems:
        assert len(build_graph(workflow)) == len(nodes)


@settings(deadline=None)
@given(acyclic())
def test_a_graph_without_a_cycle_has_no_problems_and_an_order(edges: Edges) -> None:
    graph = build_graph(workflow_of(edges))

    place = {graph.nodes[at].node.id: n for n, at in enumerate(graph.topological_order())}
    assert len(place) == len(edges)
    assert all(place[NodeId(up)] < place[NodeId(down)] for down in edges for up in edges[down])


@settings(deadline=None)
@given(acyclic(least=2), st.data())
def test_a_cycle_is_always_found_and_the_reported_path_is_one(
    edges: Edges, data: st.DataObject
) -> None:
    ring = data.draw(st.lists(st.sampled_from(list(edges)), min_size=2, max_size=6, unique=True))
    for up, down in pairwise([*ring, ring[0]]):
        edges[down].add(up)

    problems = find_problems(workflow_of(edges))

    cycles = [problem for problem in problems if problem.startswith("cycle: ")]
    assert cycles
    for problem in cycles:
        path = problem.removeprefix("cycle: ").partition(";")[0].split(" → ")
        assert path[0] == path[-1]
        assert len(set(path)) == len(path) - 1 > 1
        assert all(up in edges[down] for up, down in pairwise(path))


@settings(deadline=None)
@given(acyclic(least=2), st.data())
def test_templates_may_refer_to_upstream_nodes_and_no_others(
    edges: Edges, data: st.DataObject
) -> None:
    reader = data.draw(st.sampled_from(list(edges)))
    named = data.draw(st.sets(st.sampled_from(list(edges)), max_size=5)) - {reader}
    config = {"x": [f"{{{{ {name}.y }}}}" for name in sorted(named)]}
    nodes = [
        Node(
            id=NodeId(name),
            handler="h",
            dependencies=tuple(map(NodeId, sorted(parents))),
            config=config if name == reader else {},
        )
        for name, parents in edges.items()
    ]

    problems = find_problems(Workflow(name="w", nodes=tuple(nodes)))

    refused = {name for name in named if any(f"'{name}.y'" in problem for problem in problems)}
    assert refused == named - ancestors(edges, reader)
    assert len(problems) == len(refused)


def ancestors(edges: Edges, name: str) -> set[str]:
    ancestor_names: set[str] = set()
    unvisited = set(edges[name])
    while unvisited:
        up = unvisited.pop()
        ancestor_names.add(up)
        unvisited |= edges[up] - ancestor_names
    return ancestor_names


MANY = 100_000


def chain() -> Edges:
    return {str(n): {str(n - 1)} if n else set() for n in range(MANY)}


def only_roots() -> Edges:
    return {str(n): set() for n in range(MANY)}


def web() -> Edges:
    return {str(n): {str(m) for m in (n - 1, n - 2, n // 2) if 0 <= m < n} for n in range(MANY)}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [chain, only_roots, web])
def test_a_hundred_thousand_nodes_take_about_a_second(shape: Callable[[], Edges]) -> None:
    workflow = workflow_of(shape())

    began = time.process_time()
    problems = find_problems(workflow)

    assert problems == []
    assert time.process_time() - began < 10  # about one second; a busy machine may be slow


@pytest.mark.slow
def test_many_distant_references_are_checked_in_batches() -> None:
    nodes = [
        Node(
            id=NodeId(f"n{n}"),
            handler="h",
            dependencies=(NodeId(f"n{n - 1}"),) if n else (),
            config={"x": f"{{{{ n{n // 2}.y }}}}"} if n > 1 else {},
        )
        for n in range(20_000)
    ]

    began = time.process_time()
    problems = find_problems(Workflow(name="w", nodes=tuple(nodes)))

    assert problems == []
    assert time.process_time() - began < 10  # about half a second; one by one takes minutes
