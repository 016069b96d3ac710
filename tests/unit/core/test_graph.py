"""Compiled graphs: layers, order, neighbours."""

import pytest

from runnel.core.graph import Graph
from runnel.core.workflow import RetryPolicy, decode_workflow, encode_workflow, hash_workflow
from tests.driver import node, workflow

DOCUMENT = workflow(
    node("extract"),
    node("save_parquet", "extract"),
    node("save_json", "extract"),
    node("record_metrics", "extract"),
    node("create_review", "save_parquet", "save_json"),
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
    nodes = [node("n0"), *[node(f"n{i}", f"n{i - 1}") for i in range(1, 100_000)]]

    assert len(Graph(workflow(*nodes)).layers()) == 100_000


def test_equal_workflows_have_one_canonical_form_and_hash() -> None:
    first = workflow(node("a", config={"x": 1, "y": [2]}))
    second = workflow(node("a", config={"y": [2], "x": 1}))
    other = workflow(node("a", config={"y": [2], "x": 2}))

    assert hash_workflow(first) == hash_workflow(second)
    assert hash_workflow(first) != hash_workflow(other)
    assert decode_workflow(encode_workflow(first)) == second


def test_the_same_number_written_differently_is_the_same_workflow() -> None:
    first, second = (
        workflow(node("a", timeout_seconds=50)),
        workflow(node("a", timeout_seconds=50.0)),
    )

    assert hash_workflow(first) == hash_workflow(second)
    assert hash_workflow(decode_workflow(encode_workflow(first))) == hash_workflow(first)


def test_a_default_that_is_spelled_out_is_the_same_workflow() -> None:
    spelled = node("a", timeout_seconds=float("300"), retry=RetryPolicy(max_retries=int("3")))

    assert hash_workflow(workflow(spelled)) == hash_workflow(workflow(node("a")))
