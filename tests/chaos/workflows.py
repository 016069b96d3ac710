"""The mixed workflows, each with its expected final state and output."""

from collections.abc import Sequence
from typing import Any

import msgspec

from runnel.authoring.documents import read_document
from runnel.core.states import ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import Workflow

ITEMS = 12
QUICK = {"max_retries": 5, "initial_delay": 0.02, "max_delay": 0.1}


class ExpectedWorkflow(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow with its expected result. `output` is set if it completes."""

    workflow: Workflow
    state: ExecutionState
    output: Json = None


def _node(name: str, function: str, *parents: str, **fields: Any) -> dict[str, Any]:
    args = fields.pop("args", {})
    config = {"function": f"tests.chaos.functions:{function}", "args": args}
    return {
        "id": name,
        "handler": "python",
        "dependencies": list(parents),
        "config": config,
        "retry": QUICK,
        **fields,
    }


def _workflow(name: str, *nodes: dict[str, Any], **fields: Any) -> Workflow:
    return read_document({"name": name, "nodes": list(nodes), **fields}, source=name)


def _shape(name: str, output: Json, *nodes: dict[str, Any], **fields: Any) -> ExpectedWorkflow:
    workflow = _workflow(name, *nodes, **fields)
    return ExpectedWorkflow(workflow=workflow, state=ExecutionState.COMPLETED, output=output)


def _failing(name: str, *nodes: dict[str, Any], **fields: Any) -> ExpectedWorkflow:
    return ExpectedWorkflow(workflow=_workflow(name, *nodes, **fields), state=ExecutionState.FAILED)


_DIAMOND = [
    _node("a", "add"),
    _node("b", "add", "a"),
    _node("c", "add", "a"),
    _node("d", "add", "b", "c"),
]
_CHAIN = [_node(f"n{i}", "add", *([f"n{i - 1}"] if i else [])) for i in range(5)]

SHAPES: Sequence[ExpectedWorkflow] = (
    _shape("chain", 5, *_CHAIN),
    _shape("diamond", 5, *_DIAMOND),
    _shape(
        "map",
        1 + ITEMS * (ITEMS - 1),
        _node(
            "each",
            "double",
            for_each=f"[{', '.join(map(str, range(ITEMS)))}]",
            args={"value": "{{ item }}"},
        ),
        _node("join", "add", "each"),
    ),
    _shape(
        "slow",
        4,
        *[_node(f"s{i}", "linger") for i in range(3)],
        _node("join", "add", *[f"s{i}" for i in range(3)]),
    ),
    _shape("flaky", 2, _node("a", "fail_twice"), _node("b", "add", "a")),
    _shape(
        "pause",
        2,
        _node("a", "add"),
        {"id": "rest", "handler": "sleep", "dependencies": ["a"], "config": {"seconds": 0.3}},
        _node("b", "add", "a", "rest"),
    ),
    _shape(
        "keyed",
        6,
        *[_node(f"k{i}", "add", concurrency_key=f"key{i % 2}") for i in range(5)],
        _node("join", "add", *[f"k{i}" for i in range(5)]),
    ),
    _shape(
        "parent",
        6,
        {
            "id": "child",
            "handler": "workflow",
            "config": {"definition": {"name": "child", "nodes": _DIAMOND}},
        },
        _node("after", "add", "child"),
    ),
    _failing(
        "exhausted",
        _node("a", "fail", retry={**QUICK, "max_retries": 1}),
        _node("b", "add", "a"),
    ),
    _failing(
        "refused",
        _node("a", "add"),
        _node("b", "refuse", "a"),
        _node("c", "add", "a"),
        _node("tidy", "add", "b", "c", run_when="all_settled"),
        on_failure="continue",
    ),
)
