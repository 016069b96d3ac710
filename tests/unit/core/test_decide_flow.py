"""The course of executions: data passing, skipping, clean-up, retries, cancelling."""

import pytest

from runnel.core.retry import (
    CRASH_SPREAD_S,
    CRASH_SPREAD_S_MAX,
    LOSSES_TOGETHER_MAX,
    ErrorInfo,
    RetryPolicy,
)
from runnel.core.run_when import RunWhen, SkipReason
from runnel.core.states import ExecutionState as X
from runnel.core.states import NodeState as S
from runnel.core.workflow import OnFailure
from tests.core_driver import TRANSIENT, CoreDriver, make_node, make_workflow

DIAMOND = make_workflow(
    make_node("a"), make_node("b", "a"), make_node("c", "a"), make_node("d", "b", "c")
)


def test_a_chain_passes_each_output_to_the_next_node() -> None:
    driver = CoreDriver(
        make_workflow(make_node("a"), make_node("b", "a"), make_node("c", "b"))
    ).start({"x": 1})

    driver.finish("a", {"n": 1})
    task = driver.tasks[driver.token("b")]
    driver.finish("b", {"n": 2})

    assert task.inputs["a"].decode() == {"n": 1}  # type: ignore[index]
    assert task.execution_input.decode() == {"x": 1}
    assert driver.queued() == ["c"]
    driver.finish("c", "end")
    assert driver.root.state is X.COMPLETED
    assert driver.output() == "end"


def test_a_join_gets_the_outputs_of_all_its_parents_and_waits_for_the_last() -> None:
    driver = CoreDriver(DIAMOND).start()
    driver.finish("a")
    assert driver.queued() == ["b", "c"]

    driver.finish("c", 3)
    assert driver.queued() == ["b"]
    driver.finish("b", 2)

    task = driver.tasks[driver.token("d")]
    assert {name: value.decode() for name, value in task.inputs.items()} == {"b": 2, "c": 3}


def test_a_template_may_read_an_ancestor_that_is_not_a_parent() -> None:
    reach = make_node("c", "b", config={"x": "{{ a.n }}"})
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a"), reach)).start()

    driver.finish("a", {"n": 7})
    driver.finish("b")

    task = driver.tasks[driver.token("c")]
    assert task.inputs["a"].decode() == {"n": 7}  # type: ignore[index]
    assert task.parents == 1


def test_several_last_nodes_give_an_output_by_id() -> None:
    driver = (
        CoreDriver(make_workflow(make_node("a"), make_node("b")))
        .start()
        .finish_all(lambda t: t.token.node_id)
    )

    assert driver.output() == {"a": "a", "b": "b"}


def test_the_output_template_gives_the_result_of_the_execution() -> None:
    driver = CoreDriver(
        make_workflow(make_node("a"), output={"sum": "{{ a.n }}", "of": "{{ input.k }}"})
    )

    driver.start({"k": "v"}).finish_all(lambda _task: {"n": 3})

    assert driver.output() == {"sum": 3, "of": "v"}


def test_an_output_template_with_an_unknown_name_fails_the_execution() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), output="{{ a.missing }}"))

    driver.start().finish_all(lambda _task: {"n": 3})

    assert driver.root.state is X.FAILED
    assert "has no 'missing'" in str(driver.root.error)


def test_a_false_condition_skips_the_node_and_those_that_depend_on_it_alone() -> None:
    definition = make_workflow(
        make_node("a"),
        make_node("b", "a", condition="a.go"),
        make_node("c", "b"),
        make_node("d", "a", "c"),
    )
    driver = CoreDriver(definition).start()

    driver.finish("a", {"go": False})

    assert driver.states() == {"a": S.COMPLETED, "b": S.SKIPPED, "c": S.SKIPPED, "d": S.QUEUED}
    reasons = [run.skip for run in driver.root.nodes]
    assert reasons[1:3] == [SkipReason.CONDITION_FALSE, SkipReason.PARENTS_SKIPPED]


def test_a_condition_that_can_not_be_evaluated_fails_its_node() -> None:
    driver = CoreDriver(
        make_workflow(make_node("a"), make_node("b", "a", condition="a.go.further"))
    ).start()

    driver.finish("a", {"go": 1})

    assert driver.states()["b"] is S.FAILED
    assert driver.root.state is X.FAILED
    assert "'a.go' is a number" in str(driver.root.nodes[1].error)


def test_fail_fast_cancels_running_nodes_and_runs_the_clean_up() -> None:
    definition = make_workflow(
        make_node("a"),
        make_node("b"),
        make_node("after", "a"),
        make_node("undo", "b", run_when=RunWhen.ONE_FAILED),
        make_node("always", "a", "b", run_when=RunWhen.ALL_SETTLED),
    )
    driver = CoreDriver(definition).start()
    running = driver.token("b")

    driver.fail("a")

    assert driver.states() == {
        "a": S.FAILED,
        "b": S.CANCELLED,
        "after": S.CANCELLED,
        "undo": S.QUEUED,
        "always": S.QUEUED,
    }
    assert driver.dropped == [running]
    driver.finish_all()
    assert driver.root.state is X.FAILED
    assert "node 'a' failed: ValueError: bad" in str(driver.root.error)
    assert driver.root.nodes[1].reason == driver.root.nodes[2].reason == "node 'a' failed"


def test_a_skipped_node_names_the_rule_that_was_not_met() -> None:
    skipping = make_workflow(
        make_node("a"),
        make_node("undo", "a", run_when=RunWhen.ONE_FAILED),
        make_node("then", "undo", run_when=RunWhen.ALL_COMPLETED),
    )
    driver = CoreDriver(skipping).start()
    driver.finish_all()

    assert [run.reason for run in driver.root.nodes[1:]] == [
        "run_when one_failed was not met: no parent failed",
        "run_when all_completed was not met: a parent was skipped",
    ]


def test_a_failed_map_has_the_traceback_of_its_item() -> None:
    driver = CoreDriver(make_workflow(make_node("m", for_each="[1, 2]"))).start()
    error = ErrorInfo(type="ValueError", message="bad", traceback="line 4")

    driver.fail("m", item=1, error=error)

    assert driver.root.nodes[0].error == ErrorInfo(
        type="ValueError", message="m[1]: bad", traceback="line 4"
    )


def test_continue_skips_the_dependents_of_a_failed_node_and_runs_all_others() -> None:
    definition = make_workflow(
        make_node("a"),
        make_node("b"),
        make_node("a2", "a"),
        make_node("a3", "a2"),
        make_node("b2", "b"),
        on_failure=OnFailure.CONTINUE,
    )
    driver = CoreDriver(definition).start()

    driver.fail("a")
    driver.finish_all()

    assert driver.states() == {
        "a": S.FAILED,
        "b": S.COMPLETED,
        "a2": S.SKIPPED,
        "a3": S.SKIPPED,
        "b2": S.COMPLETED,
    }
    assert driver.root.nodes[3].skip is SkipReason.DEPENDENCY_FAILED
    assert driver.root.state is X.FAILED


def test_one_failed_does_not_clean_up_after_a_node_that_never_began() -> None:
    definition = make_workflow(
        make_node("reserve"),
        make_node("book", "reserve"),
        make_node("undo_reserve", "reserve", run_when=RunWhen.ONE_FAILED),
        make_node("undo_book", "book", run_when=RunWhen.ONE_FAILED),
    )
    driver = CoreDriver(definition).start()

    driver.fail("reserve")

    assert driver.states()["undo_reserve"] is S.QUEUED
    assert driver.states()["undo_book"] is S.SKIPPED


def test_a_retry_waits_for_its_timer_and_then_counts_as_a_new_attempt() -> None:
    retry = RetryPolicy(max_retries=2, initial_delay=10, jitter=False)
    driver = CoreDriver(make_workflow(make_node("a", retry=retry))).start()

    driver.fail("a", TRANSIENT)
    assert driver.states()["a"] is S.WAITING
    driver.advance(9.9)
    assert driver.states()["a"] is S.WAITING
    driver.advance(0.2)
    assert driver.states()["a"] is S.QUEUED
    driver.fail("a", TRANSIENT)
    driver.advance(20)
    driver.finish("a", "ok")

    assert driver.root.state is X.COMPLETED
    assert driver.root.nodes[0].attempt == 3
    assert not driver.timers


def test_retries_that_are_used_up_fail_the_node_without_a_dead_letter() -> None:
    retry = RetryPolicy(max_retries=1, initial_delay=1, jitter=False)
    driver = CoreDriver(make_workflow(make_node("a", retry=retry))).start()

    driver.fail("a", TRANSIENT)
    driver.advance(1)
    driver.fail("a", TRANSIENT)

    assert driver.root.state is X.FAILED
    assert driver.root.nodes[0].failures == 2
    assert driver.dead_letters == []


def test_an_error_that_is_not_retryable_fails_at_once_and_leaves_a_dead_letter() -> None:
    driver = CoreDriver(make_workflow(make_node("a", queue="slow"))).start()
    token = driver.token("a")

    driver.fail("a")

    assert driver.root.state is X.FAILED
    assert [(letter.token, letter.queue) for letter in driver.dead_letters] == [
        (token, "tasks:slow")
    ]


def test_a_lost_task_is_issued_again_and_its_late_report_is_refused() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()
    lost = driver.token("a")

    driver.lose("a")
    current = driver.token("a")
    driver.send_completed(lost, "late")
    assert driver.states()["a"] is S.QUEUED
    driver.finish("a", "good")

    assert current.attempt == lost.attempt + 1
    assert driver.output() == "good"


def test_a_task_that_keeps_killing_its_workers_goes_to_the_dead_letters() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    for _ in range(driver.policy.crashes_max + 1):
        assert driver.states()["a"] is S.QUEUED
        driver.lose("a", was_alone=True)

    assert driver.root.state is X.FAILED
    assert str(driver.root.nodes[0].error) == (
        "CrashLoop: 4 processes died while they held this task and no other task"
    )
    assert len(driver.dead_letters) == 1


def lose_together(driver: CoreDriver, times: int) -> None:
    for _ in range(times):
        driver.lose("a", was_started=True)
        driver.advance(CRASH_SPREAD_S_MAX)


def test_a_task_that_was_never_alone_when_its_process_died_has_a_higher_limit() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    lose_together(driver, LOSSES_TOGETHER_MAX)

    assert driver.states()["a"] is S.QUEUED
    assert driver.tasks[driver.token("a")].losses == LOSSES_TOGETHER_MAX
    driver.finish("a")
    assert driver.root.state is X.COMPLETED


def test_a_task_whose_processes_died_too_often_with_other_tasks_fails() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    lose_together(driver, LOSSES_TOGETHER_MAX + 1)

    assert driver.root.state is X.FAILED
    assert str(driver.root.nodes[0].error) == (
        "CrashLoop: 11 processes died while they held this task and other tasks"
    )
    assert len(driver.dead_letters) == 1


def test_tasks_whose_workers_died_twice_are_issued_again_at_different_times() -> None:
    """One task kills its worker, and three others ran beside it: it is unknown which one is the
    cause.
    """
    names = ["a", "b", "c", "d"]
    driver = CoreDriver(make_workflow(*map(make_node, names))).start()

    for _ in range(2):
        assert {driver.states()[name] for name in names} == {S.QUEUED}
        for name in names:
            driver.lose(name, was_started=True)

    delays = [run.due - driver.now for run in driver.root.nodes if run.due is not None]
    assert {driver.states()[name] for name in names} == {S.WAITING}
    assert len(set(delays)) == len(names)
    assert 0 < min(delays) < max(delays) < CRASH_SPREAD_S
    driver.advance(CRASH_SPREAD_S)
    for name in names:
        driver.finish(name)
    assert driver.root.state is X.COMPLETED


def test_a_task_with_a_key_gives_it_back_while_it_waits_after_a_crash() -> None:
    keyed = make_node("a", concurrency_key="k")
    driver = CoreDriver(
        make_workflow(keyed, make_node("b", "c", concurrency_key="k"), make_node("c"))
    )
    driver.start()

    for _ in range(2):
        driver.lose("a", was_started=True)
    driver.finish("c")

    assert (driver.states()["a"], driver.states()["b"]) == (S.WAITING, S.QUEUED)
    driver.finish("b")
    driver.advance(CRASH_SPREAD_S)
    driver.finish("a")
    assert driver.root.state is X.COMPLETED


def test_tasks_lost_before_they_started_do_not_count_as_a_crash_loop() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    for _ in range(50):
        driver.lose("a", was_started=False)

    assert driver.states()["a"] is S.QUEUED


def test_a_deferred_task_waits_without_counting_as_failed() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()

    driver.defer("a", 30)
    assert driver.states()["a"] is S.WAITING
    driver.advance(30)
    driver.finish("a")

    assert driver.root.nodes[0].failures == 0
    assert driver.root.state is X.COMPLETED


def test_max_concurrency_bounds_issued_tasks_and_the_next_follows_at_once() -> None:
    definition = make_workflow(*[make_node(f"n{i}") for i in range(5)], max_concurrency=2)
    driver = CoreDriver(definition).start()
    seen = []

    while driver.tasks:
        seen.append(len(driver.tasks))
        driver.finish(driver.queued()[0])

    assert seen == [2, 2, 2, 2, 1]
    assert driver.root.state is X.COMPLETED


@pytest.mark.parametrize("state", ["PENDING", "QUEUED", "WAITING", "cleaning up", "final"])
def test_cancel_works_in_every_state(state: str) -> None:
    clean_up = make_node("tidy", "a", run_when=RunWhen.ALL_SETTLED)
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b", "a"), clean_up))
    driver.start(is_held=state == "PENDING")
    if state == "WAITING":
        driver.fail("a", TRANSIENT)
    elif state == "cleaning up":
        driver.fail("a")
    elif state == "final":
        driver.finish_all()

    driver.cancel()
    driver.finish_all()

    expected = {"final": X.COMPLETED, "cleaning up": X.FAILED}.get(state, X.CANCELLED)
    assert driver.root.state is expected
    assert not driver.timers
    if state in ("QUEUED", "WAITING"):
        assert driver.states() == {"a": S.CANCELLED, "b": S.CANCELLED, "tidy": S.COMPLETED}


def test_a_held_execution_waits_for_its_trigger() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start(is_held=True)
    assert driver.root.state is X.PENDING
    assert not driver.tasks

    driver.trigger({"k": 2})

    assert driver.tasks[driver.token("a")].execution_input.decode() == {"k": 2}


def test_a_skipped_chain_of_any_length_is_one_decision() -> None:
    nodes = [make_node("a"), make_node("n0", "a", condition="false")]
    nodes += [make_node(f"n{i}", f"n{i - 1}") for i in range(1, 5_000)]
    driver = CoreDriver(make_workflow(*nodes)).start()

    driver.finish("a")

    assert driver.root.state is X.COMPLETED
    assert driver.states()["n4999"] is S.SKIPPED


def test_an_ancestor_that_the_config_names_does_not_take_the_place_of_a_skipped_parent() -> None:
    definition = make_workflow(
        make_node("a"),
        make_node("b", "a"),
        make_node("c", "a", condition="false"),
        make_node("d", "b", "c", config={"x": "{{ a.n }}"}),
    )
    driver = CoreDriver(definition).start()
    driver.finish("a", {"n": 1})
    driver.finish("b", 2)

    task = driver.tasks[driver.token("d")]

    assert list(task.inputs) == ["b", "a"]
    assert task.parents == 1
