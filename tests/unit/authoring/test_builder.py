"""WorkflowDAG: its checks, and the workflow that it builds."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import runnel
from runnel import Cache, InvalidWorkflowError, RetryPolicy, StepCache, WorkflowDAG
from runnel.authoring.context import StepOutputs
from runnel.core.run_when import RunWhen
from runnel.core.workflow import OnFailure

ROOT = Path(__file__).parents[3]
PUBLIC = [
    "BatchResult",
    "Cache",
    "Client",
    "Context",
    "Engine",
    "ExecutionFilter",
    "HandlerRegistry",
    "InvalidWorkflowError",
    "LettersOf",
    "RateLimit",
    "Rerun",
    "RetryPolicy",
    "RunnelError",
    "Schedule",
    "Skip",
    "StepCache",
    "StepContext",
    "StepResult",
    "SyncClient",
    "Task",
    "TokenBucketRateLimiter",
    "TraceError",
    "Webhook",
    "WebhookKind",
    "WorkflowDAG",
    "WorkflowExecutor",
    "WorkflowFailedError",
    "WorkflowResult",
    "__version__",
    "default",
    "errors",
    "handler",
    "item",
    "lifespan",
    "load_file",
    "run",
    "run_many",
    "secret",
    "sleep",
    "submit",
    "task",
    "text",
    "wait_for_signal",
    "workflow",
]


def work(ctx: object) -> None:
    del ctx


async def async_work(ctx: object) -> bool:
    return ctx is not None


def document() -> WorkflowDAG:
    dag = WorkflowDAG("document")
    dag.add_step("extract", work)
    dag.add_step("save_parquet", work, depends_on=["extract"])
    dag.add_step("save_json", work, depends_on=["extract"])
    dag.add_step("record_metrics", work, depends_on=["extract"])
    dag.add_step("create_review", work, depends_on=["save_parquet", "save_json"])
    return dag


def problems_of(dag: WorkflowDAG) -> tuple[str, ...]:
    with pytest.raises(InvalidWorkflowError) as caught:
        dag.validate()
    return caught.value.problems


def test_the_document_pipeline_has_its_documented_layers() -> None:
    assert document().get_execution_layers() == [
        ["extract"],
        ["save_parquet", "save_json", "record_metrics"],
        ["create_review"],
    ]


def test_a_step_becomes_a_node_of_the_workflow_model() -> None:
    dag = WorkflowDAG("w")
    dag.add_step("a", work)
    dag.add_step(
        "b",
        async_work,
        depends_on=["a"],
        resource_tag="api",
        max_retries=1,
        timeout_seconds=9.0,
        run_when="all_settled",
    )

    workflow = dag.to_workflow()

    a, b = workflow.nodes
    assert workflow.on_failure is OnFailure.CONTINUE
    assert (a.config, a.retry, a.timeout_seconds) == ({"mode": "thread"}, RetryPolicy(), 300.0)
    assert (b.config, b.dependencies, b.resource_tag) == ({"mode": "loop"}, ("a",), "api")
    assert (b.retry.max_retries, b.timeout_seconds) == (1, 9.0)
    assert b.run_when is RunWhen.ALL_SETTLED


def test_depends_on_accepts_one_id_as_text_and_none_for_no_dependency() -> None:
    dag = WorkflowDAG().add_step("extract", work, None).add_step("b", work, "extract")

    assert dag.get_execution_layers() == [["extract"], ["b"]]


def test_options_of_a_step_override_single_fields_of_its_retry_policy() -> None:
    dag = WorkflowDAG()
    dag.add_step("plain", work)
    dag.add_step("patient", work, retry_delay=10.0)
    dag.add_step("own", work, retry=RetryPolicy(max_retries=7, jitter=False), max_retries=8)

    nodes = dag.to_workflow(retry=RetryPolicy(max_retries=2, initial_delay=5.0)).nodes

    assert [node.retry.max_retries for node in nodes] == [2, 2, 8]
    assert [node.retry.initial_delay for node in nodes] == [5.0, 10.0, 1.0]
    assert [node.retry.jitter for node in nodes] == [True, True, False]


def test_a_workflow_without_steps_is_refused() -> None:
    assert problems_of(WorkflowDAG()) == (
        "the workflow has no steps; add at least one with add_step",
    )


def test_all_problems_are_reported_at_once() -> None:
    dag = WorkflowDAG("w")
    dag.add_step("a", work, depends_on=["c"])
    dag.add_step("b", work, depends_on=["a"])
    dag.add_step("c", work, depends_on=["b"])
    dag.add_step("d", work, depends_on=["extracted"])
    dag.add_step("d", work, max_retries=-1)

    problems = "\n".join(problems_of(dag))

    assert "cycle: a → b → c → a" in problems
    assert "node 'd': it depends on 'extracted', but there is no such node" in problems
    assert "node 'd': more than one node has this id" in problems
    assert "retry.max_retries: expected a whole number ≥ 0, got -1" in problems


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"fn": 3}, "node 'x': fn: expected a function that takes ctx, got 3"),
    ({"condition": True}, "node 'x': condition: expected a function that takes ctx, got true"),
    ({"condition": async_work}, "node 'x': condition: expected a function without async"),
    ({"retry": {"max_retries": 3}}, "node 'x': retry: expected a RetryPolicy, got an object"),
    ({"cache": Cache(key="x")}, "node 'x': cache: expected a StepCache, got a Python Cache"),
    (
        {"cache": StepCache(key="doc")},  # type: ignore[arg-type]
        "node 'x': cache.key: expected a function that takes ctx, got 'doc'",
    ),
    (
        {"cache": StepCache(key=async_work)},
        "node 'x': cache.key: expected a function without async, got an async function",
    ),
    (
        {"cache": StepCache(key=work, ttl=0)},
        "node 'x': cache.ttl: expected a timedelta or a number above 0, got 0",
    ),
    (
        {"cache": StepCache(key=work, ttl="1h")},  # type: ignore[arg-type]
        "node 'x': cache.ttl: expected a timedelta or a number above 0, got '1h'",
    ),
    ({"depends_on": [3]}, "node 'x': depends_on: expected ids of steps, got 3"),
    ({"depends_on": ["x"]}, "node 'x': the node depends on itself"),
    ({"timeout_seconds": 0}, "node 'x': timeout_seconds: expected a number above 0, got 0"),
    ({"run_when": "never"}, "node 'x': run_when: expected one of default, all_completed"),
    ({"id": ""}, "a node's id: expected a printable text"),
    ({"id": "input"}, "node 'input': the id is a reserved name"),
]


@pytest.mark.parametrize(("fields", "expected"), WRONG)
def test_each_problem_of_a_step_is_one_sentence(fields: dict[str, Any], expected: str) -> None:
    dag = WorkflowDAG("w")
    dag.add_step(**{"id": "x", "fn": work, **fields})

    (problem,) = problems_of(dag)
    assert problem.startswith(expected)


def test_an_unknown_on_failure_policy_is_refused() -> None:
    dag = WorkflowDAG("w", on_failure="ignore").add_step("a", work)

    assert problems_of(dag) == ("on_failure: expected one of fail_fast, continue, got 'ignore'",)


def test_a_step_sees_the_outputs_of_its_ancestors_only() -> None:
    parents: dict[str, tuple[str, ...]] = {"a": (), "beside": (), "b": ("a",), "c": ("b",)}
    outputs = StepOutputs("c", parents, {"a": 1, "beside": 2, "b": 3})

    assert dict(outputs) == {"b": 3, "a": 1}
    assert (outputs["a"], outputs.get("beside"), "beside" in outputs, len(outputs)) == (
        1,
        None,
        False,
        2,
    )
    assert repr(outputs) == "<outputs of b, a>"


def test_outputs_far_up_a_long_chain_can_be_read() -> None:
    parents = {str(i): (str(i - 1),) if i else () for i in range(100_000)}
    outputs = StepOutputs("99999", parents, {"99998": "near", "0": "far"})

    assert (outputs["99998"], outputs["0"], len(outputs)) == ("near", "far", 2)


def test_the_public_names_are_exactly_the_listed_ones() -> None:
    assert sorted(runnel.__all__) == PUBLIC
    assert dir(runnel) == PUBLIC
    for name in PUBLIC:
        assert getattr(runnel, name) is not None


def test_an_unknown_name_of_the_package_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'runnel' has no attribute 'Workflow'"):
        _ = runnel.Workflow


def test_the_version_equals_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert runnel.__version__ == project["version"]


def test_importing_runnel_imports_no_other_module_of_it() -> None:
    code = "import runnel, sys; print([name for name in sys.modules if name.startswith('runnel.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
