"""`when_not_met: fail` fails a node that would be skipped because of its parents."""

import pytest

from runnel.authoring.builder import WorkflowDAG
from runnel.authoring.documents import read_document
from runnel.core.commands import TaskSkipped
from runnel.core.run_when import RunWhen, WhenNotMet
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.validation import find_problems
from runnel.core.workflow import OnFailure, decode_workflow, encode_workflow
from runnel.errors import InvalidWorkflowError
from tests.core_driver import CoreDriver, make_node, make_workflow


def settle_parents(driver: CoreDriver, parents: str) -> None:
    for node in ("a", "b"):
        if node in parents.split(" skipped", maxsplit=1)[0] and "skipped" in parents:
            driver.send(TaskSkipped(token=driver.token(node)))
        elif node in parents and "failed" in parents:
            driver.fail(node)
        else:
            driver.finish(node)


@pytest.mark.parametrize(
    ("rule", "parents", "error"),
    [
        (RunWhen.DEFAULT, "a failed", "dependency failed"),
        (RunWhen.DEFAULT, "ab skipped", "all parents were skipped"),
        (RunWhen.DEFAULT, "a skipped", None),
        (RunWhen.ALL_COMPLETED, "a skipped", "run_when all_completed was not met: a parent was"),
        (RunWhen.ALL_COMPLETED, "b failed", "dependency failed"),
        (RunWhen.NONE_FAILED, "ab skipped", None),
        (RunWhen.NONE_FAILED, "b failed", "dependency failed"),
        (RunWhen.ALL_COMPLETED, "", None),
    ],
)
def test_a_node_fails_if_its_rule_is_not_met(
    rule: RunWhen, parents: str, error: str | None
) -> None:
    child = make_node("child", "a", "b", run_when=rule, when_not_met=WhenNotMet.FAIL)
    below = make_node("below", "child")
    driver = CoreDriver(
        make_workflow(make_node("a"), make_node("b"), child, below, on_failure=OnFailure.CONTINUE)
    ).start()

    settle_parents(driver, parents)

    run = driver.root.nodes[2]
    if error is None:
        assert driver.queued() == ["child"]
        return
    assert run.state is S.FAILED
    assert run.error is not None
    assert run.error.type == "RunWhenNotMet"
    assert run.error.message.startswith(error)
    assert driver.states()["below"] is S.SKIPPED
    assert driver.root.state is X.FAILED
    assert driver.dead_letters == [] or parents.endswith("failed")


def test_a_false_condition_still_skips_the_node() -> None:
    child = make_node("child", "a", condition="false", when_not_met=WhenNotMet.FAIL)
    driver = CoreDriver(make_workflow(make_node("a"), child)).start()

    driver.finish("a")

    assert driver.states()["child"] is S.SKIPPED
    assert driver.root.state is X.COMPLETED


def test_a_skipped_parent_fails_the_execution_at_once_under_fail_fast() -> None:
    child = make_node("child", "a", when_not_met=WhenNotMet.FAIL)
    driver = CoreDriver(make_workflow(make_node("a"), make_node("long"), child)).start()

    driver.send(TaskSkipped(token=driver.token("a")))

    assert driver.root.state is X.FAILED
    assert driver.states()["long"] is S.CANCELLED


@pytest.mark.parametrize("rule", [RunWhen.ALL_SETTLED, RunWhen.ONE_FAILED])
def test_a_clean_up_node_can_not_fail_by_its_rule(rule: RunWhen) -> None:
    node = make_node("tidy", "a", run_when=rule, when_not_met=WhenNotMet.FAIL)

    (problem,) = find_problems(make_workflow(make_node("a", handler="output"), node))

    assert "when_not_met: 'fail' has no use with run_when" in problem


def test_documents_builder_and_stored_definitions_have_the_option() -> None:
    document = {
        "name": "w",
        "nodes": [
            {"id": "a", "handler": "output"},
            {"id": "b", "handler": "output", "dependencies": ["a"], "when_not_met": "fail"},
        ],
    }
    built = WorkflowDAG("w").add_node("a", "output")
    built.add_node("b", "output", depends_on=["a"], when_not_met="fail")

    loaded = read_document(document)

    assert loaded.nodes[1].when_not_met is WhenNotMet.FAIL
    assert built.to_workflow().nodes == loaded.nodes
    assert decode_workflow(encode_workflow(loaded)) == loaded


def test_the_builder_refuses_an_unknown_choice() -> None:
    built = WorkflowDAG("w").add_step("a", print, when_not_met="panic")

    with pytest.raises(InvalidWorkflowError, match="expected one of skip, fail, got 'panic'"):
        built.validate()
