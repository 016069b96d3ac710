"""Reruns reuse results that settled well, and run all other nodes with their dependents again."""

import pytest
from msgspec import Raw

from runnel.core.commands import StartExecution, TakeOver
from runnel.core.execution import Execution
from runnel.core.ids import NodeId
from runnel.core.rerun import find_undone_results, select_reused_results
from runnel.core.retry import RetryPolicy
from runnel.core.run_when import RunWhen, SkipReason
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.values import make_inline_value
from runnel.core.workflow import OnFailure, ReusedResult
from tests.core_driver import ROOT, CoreDriver, make_node, make_workflow

DIAMOND = make_workflow(
    make_node("a"), make_node("b", "a"), make_node("c", "a"), make_node("d", "b", "c")
)
ONCE = RetryPolicy(max_retries=0)


def failed_at(failed: str) -> Execution:
    """Returns a diamond in which this node failed and every node before it completed."""
    driver = CoreDriver(DIAMOND).start({"x": 1})
    for name in "abcd":
        if name == failed:
            driver.fail(name)
            return driver.root
        driver.finish(name, name.upper())
    return driver.root


@pytest.mark.parametrize(
    ("failed", "again", "runs"),
    [
        ("a", (), ["a"]),
        ("b", (), ["b", "c"]),  # the failure of b cancelled c
        ("c", (), ["c"]),
        ("d", (), ["d"]),
        ("d", ("b",), ["b"]),
        ("d", ("a",), ["a"]),
        ("", (), []),
        ("", ("c",), ["c"]),
    ],
)
def test_a_rerun_begins_with_failed_and_named_nodes(
    failed: str, again: tuple[str, ...], runs: list[str]
) -> None:
    driver = CoreDriver(DIAMOND).rerun(failed_at(failed), *again)

    assert driver.queued() == runs
    driver.finish_all(lambda task: f"{task.token.node_id}2")
    assert driver.root.state is X.COMPLETED


def test_a_node_gets_reused_outputs() -> None:
    driver = CoreDriver(DIAMOND).rerun(failed_at("c"))

    driver.finish("c", "new")

    task = driver.tasks[driver.token("d")]
    assert {name: value.decode() for name, value in task.inputs.items()} == {"b": "B", "c": "new"}
    assert task.execution_input.decode() == {"x": 1}
    taken = driver.root.nodes[0]
    assert (taken.state, taken.attempt, taken.reason) == (S.COMPLETED, 0, "taken over from e0")


def test_a_rerun_without_nodes_to_run_ends_with_the_same_output() -> None:
    former = failed_at("")

    driver = CoreDriver(DIAMOND).rerun(former)

    assert driver.root.state is X.COMPLETED
    assert driver.output() == "D"


def test_a_changed_definition_runs_changed_and_new_nodes() -> None:
    changed = make_workflow(
        make_node("a"),
        make_node("b", "a", config={"new": 1}),
        make_node("c", "a"),
        make_node("d", "b", "c"),
        make_node("e"),
    )

    driver = CoreDriver(changed).rerun(failed_at(""))

    assert sorted(driver.queued()) == ["b", "e"]


def test_a_skipped_node_stays_skipped_unless_it_depends_on_a_node_that_runs_again() -> None:
    graph = make_workflow(
        make_node("a"),
        make_node("no", "a", condition="false"),
        make_node("bad", "a", retry=ONCE),
        make_node("behind", "bad"),
        make_node("tidy", "bad", run_when=RunWhen.ALL_SETTLED),
        on_failure=OnFailure.CONTINUE,
    )
    former = CoreDriver(graph).start()
    former.finish("a")
    former.fail("bad")
    former.finish("tidy")
    assert former.root.state is X.FAILED

    taken = list(select_reused_results(former.root, former.graph))
    driver = CoreDriver(graph).rerun(former.root)

    assert [(reused.node, reused.skip) for reused in taken] == [
        ("a", None),
        ("no", SkipReason.CONDITION_FALSE),
    ]
    driver.finish("bad")
    assert sorted(driver.queued()) == ["behind", "tidy"]


def test_a_map_runs_only_the_items_that_did_not_complete() -> None:
    graph = make_workflow(
        make_node("a"), make_node("each", "a", for_each="a", retry=ONCE), make_node("b", "each")
    )
    former = CoreDriver(graph).start()
    former.finish("a", [10, 20, 30, 40])
    former.finish("each", 0, item=0)
    former.finish("each", 2, item=2)
    former.fail("each", item=1)

    driver = CoreDriver(graph).rerun(former.root)

    assert [token.item for token in driver.tasks] == [1, 3]
    driver.finish("each", 33, item=3)
    driver.finish("each", 11, item=1)
    assert driver.root.nodes[1].output is not None
    assert driver.root.nodes[1].output.decode() == [0, 11, 2, 33]


@pytest.mark.parametrize("difference", ["another input", "named"])
def test_a_map_whose_list_may_have_changed_runs_all_its_items(difference: str) -> None:
    graph = make_workflow(make_node("each", for_each="input.list", retry=ONCE))
    former = CoreDriver(graph).start({"list": [1, 2]})
    former.finish("each", 0, item=0)
    former.fail("each", item=1)

    again = ("each",) if difference == "named" else ()
    input_ = {"list": [7, 8, 9]} if difference == "another input" else None
    driver = CoreDriver(graph).rerun(former.root, *again, input_=input_)

    assert len(driver.tasks) == (2 if difference == "named" else 3)


def test_a_reused_item_survives_a_takeover() -> None:
    graph = make_workflow(make_node("each", for_each="input.list", retry=ONCE))
    former = CoreDriver(graph).start({"list": [1, 2, 3]})
    former.finish("each", "one", item=0)
    former.fail("each", item=2)
    driver = CoreDriver(graph).rerun(former.root)

    driver.take_over()

    driver.finish("each", "two", item=1)
    driver.finish("each", "three", item=2)
    assert driver.output() == ["one", "two", "three"]


def test_a_repeated_or_late_take_over_command_changes_nothing() -> None:
    driver = CoreDriver(DIAMOND).start(is_held=True)
    take_a = TakeOver(
        execution_id=ROOT, taken=[ReusedResult(NodeId("a"), output=make_inline_value(1))]
    )

    driver.send(take_a)
    driver.send(take_a)
    driver.send(StartExecution(execution_id=ROOT))
    driver.send(
        TakeOver(
            execution_id=ROOT,
            part=1,
            taken=[ReusedResult(NodeId("b"), output=make_inline_value(2))],
        )
    )

    assert driver.queued() == ["b", "c"]
    assert driver.root.nodes[1].state is S.QUEUED


def test_a_rerun_starts_once_it_has_all_parts() -> None:
    driver = CoreDriver(DIAMOND).start(is_held=True)
    start = StartExecution(execution_id=ROOT, parts=2)
    driver.send(
        TakeOver(
            execution_id=ROOT,
            part=1,
            taken=[ReusedResult(NodeId("a"), output=make_inline_value(1))],
        )
    )

    driver.send(start)
    before = driver.queued()
    driver.send(
        TakeOver(
            execution_id=ROOT,
            part=2,
            taken=[ReusedResult(NodeId("b"), output=make_inline_value(2))],
        )
    )
    driver.send(start)

    assert (before, driver.queued()) == ([], ["c"])


def test_a_config_may_be_replaced_and_name_any_ancestor() -> None:
    graph = make_workflow(
        make_node("a"), make_node("b", "a"), make_node("c", "b", config={"x": 1}, retry=ONCE)
    )
    former = CoreDriver(graph).start()
    former.finish("a", {"n": 7})
    former.finish("b")
    driver = CoreDriver(graph).start(is_held=True)
    config = Raw(b'{"x":"{{ a.n }}"}')

    driver.send(
        TakeOver(
            execution_id=ROOT,
            taken=list(select_reused_results(former.root, graph=driver.graph)),
            configs={NodeId("c"): config},
        )
    )
    driver.send(StartExecution(execution_id=ROOT))

    task = driver.tasks[driver.token("c")]
    assert bytes(task.config) == bytes(config)
    assert set(task.inputs) == {"a", "b"}
    assert task.parents == 1


ORDER = {
    "reserve": [],
    "charge": ["reserve"],
    "ship": ["charge"],
    "refund": ["charge", "ship"],
    "report": ["refund"],
}


@pytest.mark.parametrize(
    ("clean_up", "completed", "again", "undone"),
    [
        ("refund report", "reserve charge refund report", "", "reserve charge"),
        ("refund", "reserve charge refund", "", "reserve charge"),
        ("report", "reserve charge report", "", "reserve charge"),
        ("refund", "reserve charge refund", "charge", "reserve"),
        ("refund", "reserve charge refund", "reserve", ""),  # charge depends on it
        ("", "reserve charge", "", ""),  # no clean-up ran
        ("refund report", "refund report", "", ""),  # no other node completed
    ],
)
def test_results_may_be_undone_if_clean_up_nodes_that_ran_depend_on_them(
    clean_up: str, completed: str, again: str, undone: str
) -> None:
    found = find_undone_results(
        ORDER,
        clean_up=clean_up.split(),
        completed=completed.split(),
        nodes_to_rerun=again.split(),
    )

    assert list(found.results if found else ()) == undone.split()
    assert list(found.clean_up if found else ()) == (clean_up.split() if undone else [])
