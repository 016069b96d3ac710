"""The value of a skipped node is null where null has a meaning, and missing everywhere else.

The cause of the skip makes no difference: Skip, a false condition, or a `run_when` that is not met.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel.app.embedded_engine import EmbeddedEngine
from runnel.core.run_when import RunWhen
from runnel.core.values import Json
from runnel.core.workflow import Node, Workflow
from runnel.errors import Skip, WorkflowFailedError
from runnel.views.execution import ExecutionView
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, open_engine, run_to_end, wait_for_end
from tests.integration import decorated_flows as flows

WAY_OUT = "'gone' was skipped, so it has no output; write gone | default(…), or runnel.default(…)"

every_cause = pytest.mark.parametrize("cause", ["Skip", "condition", "run_when"])


@pytest.fixture
def work() -> WorkHandler:
    handler = WorkHandler()
    handler.failures["gone"] = [Skip("nothing to do")]
    return handler


@pytest.fixture
async def engine(tmp_path: Path, work: WorkHandler) -> AsyncIterator[EmbeddedEngine]:
    async with open_engine("memory", tmp_path, work) as opened:
        yield opened


def make_skipping_workflow(cause: str, *nodes: Node, output: Json = None) -> Workflow:
    """Returns a workflow whose node `gone` is skipped, and `ok` completes."""
    gone = {
        "Skip": make_node("gone", "ok"),
        "condition": make_node("gone", "ok", condition="ok.v == 2"),
        "run_when": make_node("gone", "ok", run_when=RunWhen.ONE_FAILED),
    }[cause]
    return make_workflow(make_node("ok", config={"v": 1}), gone, *nodes, output=output)


@every_cause
async def test_a_template_of_the_output_that_reads_a_skipped_node_is_null(
    engine: EmbeddedEngine, cause: str
) -> None:
    templates: dict[str, Json] = {
        "alone": "{{ gone }}",
        "path": "{{ gone.x.y }}",
        "dict": {"in": "{{ gone.x }}"},
        "list": ["{{ gone.x }}", "{{ ok.v }}"],
        "text": "v {{ gone.x }}",
        "filter": "{{ gone.x | upper }}",
        "operator": "{{ gone.x > 1 }}",
        "default": "{{ gone.x | default('d') }} {{ ok.v }}",
        "defined": "{{ gone is defined }}",
        "literal": "{{ [gone, ok.v] }}",
    }

    view = await run_to_end(engine, make_skipping_workflow(cause, output=templates))

    assert view.error is None
    assert view.output == {
        "alone": None,
        "path": None,
        "dict": {"in": None},
        "list": [None, 1],
        "text": None,
        "filter": None,
        "operator": None,
        "default": "d 1",
        "defined": False,
        "literal": [None, 1],
    }


@every_cause
@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ gone }}", None),
        ("{{ gone.x.y }}", None),
        ({"in": "{{ gone.x }}"}, {"in": None}),
        (["{{ gone.x }}"], [None]),
        ("{{ 'yes' if gone.x == none else 'no' }}", "yes"),
        ("{{ gone.x or 7 }}", 7),
        ("{{ gone.x | default('d') }}", "d"),
        ("v {{ gone.x }}", WAY_OUT),
        ("{{ gone.x | upper }}", WAY_OUT),
        ("{{ gone.x > 1 }}", WAY_OUT),
    ],
    ids=str,
)
async def test_an_argument_is_null_or_the_error_names_the_way_out(
    engine: EmbeddedEngine, cause: str, template: Json, expected: Json
) -> None:
    reader = make_node("reader", "ok", "gone", config={"value": template})

    view = await run_to_end(engine, make_skipping_workflow(cause, reader))

    check_value(view, expected)


@every_cause
@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("gone", "SKIPPED"),
        ("gone.x", "SKIPPED"),
        ("not gone.x", "COMPLETED"),
        ("gone.x == none", "COMPLETED"),
        ("gone.x != 1", "COMPLETED"),
        ("gone.x is none", "COMPLETED"),
        ("gone.x and ok.v", "SKIPPED"),
        ("gone.x or ok.v", "COMPLETED"),
        ("gone.x | default(1) == 1", "COMPLETED"),
        ("gone.x > 1", WAY_OUT),
        ("gone.x | length", WAY_OUT),
    ],
)
async def test_a_condition_sees_null_or_fails_the_node(
    engine: EmbeddedEngine, cause: str, condition: str, expected: str
) -> None:
    reader = make_node("reader", "ok", "gone", condition=condition)

    view = await run_to_end(engine, make_skipping_workflow(cause, reader))

    node = view.nodes["reader"]
    if expected == WAY_OUT:
        assert WAY_OUT in (node.error or "")
    else:
        assert node.status == expected


@every_cause
async def test_a_map_over_a_skipped_node_has_no_items(engine: EmbeddedEngine, cause: str) -> None:
    reader = make_node("reader", "ok", "gone", for_each="gone.items")

    view = await run_to_end(engine, make_skipping_workflow(cause, reader, output="{{ reader }}"))

    assert view.output == []


async def test_a_cancelled_node_is_missing_in_a_clean_up_node(
    engine: EmbeddedEngine, work: WorkHandler
) -> None:
    """Only a skipped node is null: a cancelled or failed node should have had a value."""
    work.gate("slow")
    tidy = make_node("tidy", "slow", run_when=RunWhen.ALL_SETTLED, config={"v": "{{ slow.x }}"})
    execution_id = await engine.client.submit(make_workflow(make_node("slow"), tidy))
    await work.entered["slow"].wait()

    await engine.client.cancel(execution_id)
    view = await wait_for_end(engine, execution_id)

    assert "'slow' was skipped or did not complete" in (view.nodes["tidy"].error or "")


def check_value(view: ExecutionView, expected: Json) -> None:
    if expected == WAY_OUT:
        assert WAY_OUT in (view.nodes["reader"].error or "")
        return
    assert view.output == {"value": expected}


async def test_a_python_task_gets_none_for_every_kind_of_skipped_task() -> None:
    assert await runnel.run(flows.arguments_of_skipped, "a b") == {
        "by_itself": [None, "a b"],
        "by_condition": [None, "a b"],
        "texts": [None, None],
    }


@pytest.mark.parametrize("flow", [flows.text_of_skip, flows.text_of_unmet])
async def test_a_text_of_a_skipped_result_fails_its_task(flow: Any) -> None:
    with pytest.raises(WorkflowFailedError, match=r"was skipped.*runnel\.default\(…\) in Python"):
        await runnel.run(flow, "a b")
