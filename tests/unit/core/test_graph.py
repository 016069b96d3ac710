"""Compiled graphs: layers, order, neighbours."""

import pytest

from runnel.core.graph import Graph
from runnel.core.retry import RetryPolicy
from runnel.core.workflow import decode_workflow, encode_workflow, hash_workflow
from tests.core_driver import make_node, make_workflow

DOCUMENT = make_workflow(
    make_node("extract"),
    make_node("save_parquet", "extract"),
    make_node("save_json", "extract"),
    make_node("record_metrics", "extract"),
    make_node("create_review", "save_parquet", "save_json"),
)


def test_the_layers_are_those_of_the_document_pipeline() -> None:
    assert Graph(DOCUMENT).layers() == [
        ["extract"],
        ["save_parquet", "save_json", "record_metrics"],
        ["create_review"],
    ]


def test_the_order_has_parents_before_children() -> None:
    graph = Graph(DOCUMENT)
    order = graph.topological_order()

    for compiled in graph.nodes:
        for parent in compiled.parents:
            assert order.index(parent) < order.index(compiled.index)


@pytest.mark.slow
def test_a_chain_of_100_000_nodes_has_as_many_layers() -> None:
    nodes = [make_node("n0"), *[make_node(f"n{i}", f"n{i - 1}") for i in range(1, 100_000)]]

    assert len(Graph(make_workflow(*nodes)).layers()) == 100_000


def test_equal_workflows_have_one_canonical_form_and_hash() -> None:
    first = make_workflow(make_node("a", config={"x": 1, "y": [2]}))
    second = make_workflow(make_node("a", config={"y": [2], "x": 1}))
    other = make_workflow(make_node("a", config={"y": [2], "x": 2}))

    assert hash_workflow(first) == hash_workflow(second)
    assert hash_workflow(first) != hash_workflow(other)
    assert decode_workflow(encode_workflow(first)) == second


def test_the_same_number_written_differently_is_the_same_workflow() -> None:
    first, second = (
        make_workflow(make_node("a", timeout_seconds=50)),
        make_workflow(make_node("a", timeout_seconds=50.0)),
    )

    assert hash_workflow(first) == hash_workflow(second)
    assert hash_workflow(decode_workflow(encode_workflow(first))) == hash_workflow(first)


def test_a_default_that_is_spelled_out_is_the_same_workflow() -> None:
    spelled = make_node("a", timeout_seconds=float("300"), retry=RetryPolicy(max_retries=int("3")))

    assert hash_workflow(make_workflow(spelled)) == hash_workflow(make_workflow(make_node("a")))
