"""Late, repeated or unrelated commands change nothing."""

from collections import deque

import pytest

from runnel.core import commands as c
from runnel.core.decide import decide
from runnel.core.decide.decision_context import DecisionInputs
from runnel.core.effects import Effect, LoadBlob, SendCommand, StoreOutput
from runnel.core.ids import NO_ITEM, NodeId, NodeRef, Nonce, TaskToken, make_child_id
from runnel.core.run_when import RunWhen
from runnel.core.states import ExecutionState as X
from runnel.core.values import NULL
from runnel.core.workflow import EnginePolicy, Workflow
from tests.core_driver import PERMANENT, ROOT, TRANSIENT, CoreDriver, make_node, make_workflow

RUNNING = make_workflow(
    make_node("a"),
    make_node("each", for_each="[1, 2]"),
    make_node("nap", handler="sleep", config={"seconds": 9}),
    make_node("sub", handler="workflow", child=make_workflow(make_node("c"))),
)
OLD = TaskToken(ROOT, NodeId("a"), NO_ITEM, 1, Nonce("of another commit"))
OF_THE_MAP_ITSELF = TaskToken(ROOT, NodeId("each"), NO_ITEM, 1, Nonce(""))


def ref(node_id: str) -> NodeRef:
    return NodeRef(ROOT, NodeId(node_id))


def fired(node_id: str, kind: str, attempt: int = 1) -> c.TimerFired:
    return c.TimerFired(ref=ref(node_id), kind=kind, attempt=attempt)


def stored(node_id: str) -> c.OutputStored:
    return c.OutputStored(ref=ref(node_id), output=NULL)


def changed_by(driver: CoreDriver, command: c.Command) -> object:
    """Returns the events and effects that the command caused."""
    inputs = DecisionInputs(driver.now, Nonce("late"), driver)
    decision = decide(driver.root, driver.agendas[driver.root.id], command, inputs)
    return [*decision.events, *decision.effects]


@pytest.mark.parametrize(
    "command",
    [
        c.TaskStarted(token=OLD, worker="w", started_at=1.0),
        c.TaskCompleted(token=OLD, output=NULL),
        c.TaskFailed(token=OLD, error=PERMANENT),
        c.TaskSkipped(token=OLD, reason="late"),
        c.TaskLost(token=OLD, reason="late"),
        c.TaskDeferred(token=OLD, until=2.0),
        c.TaskCompleted(token=OF_THE_MAP_ITSELF, output=NULL),
        fired("a", "retry"),
        fired("nap", "sleep", attempt=7),
        fired("sub", "retry"),
        fired("unknown", "retry"),
        stored("a"),
        stored("each"),
        stored("unknown"),
        stored(""),
        c.BlobLoaded(execution_id=ROOT),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_running_execution_ignores_commands_for_another_state(
    command: c.Command,
) -> None:
    driver = CoreDriver(RUNNING).start()

    assert changed_by(driver, command) == []


@pytest.mark.parametrize(
    "command",
    [
        c.StartExecution(execution_id=ROOT, input=NULL),
        c.CancelExecution(execution_id=ROOT, is_forced=True),
        c.FailExecution(execution_id=ROOT, error=PERMANENT),
        c.SendSignal(execution_id=ROOT, name="go", payload=NULL, signal_id="s"),
        c.TaskCompleted(token=OLD, output=NULL),
        c.BlobLoaded(execution_id=ROOT),
        c.ResumeExecution(execution_id=ROOT),
        fired("", "timeout"),
        fired("", "sla"),
        fired("nap", "sleep"),
        stored("each"),
        stored(""),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_final_execution_ignores_everything(command: c.Command) -> None:
    driver = CoreDriver(RUNNING).start()
    driver.cancel()

    assert driver.root.state is X.CANCELLED
    assert changed_by(driver, command) == []


def test_a_task_that_has_started_does_not_start_again() -> None:
    driver = CoreDriver(make_workflow(make_node("a"))).start()
    driver.start_task("a")
    again = c.TaskStarted(token=driver.token("a"), worker="other", started_at=driver.now)

    assert changed_by(driver, again) == []
    assert driver.root.nodes[0].worker == "w"


def test_the_timer_of_a_retry_that_already_waits_for_a_slot_is_ignored() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), make_node("b"), max_concurrency=1)).start()
    driver.fail("a", TRANSIENT)
    driver.advance(3600)

    assert driver.queued() == ["b"]
    assert changed_by(driver, fired("a", "retry")) == []


def test_a_timeout_does_not_change_an_outcome_that_was_decided_before() -> None:
    tidy = make_node("tidy", run_when=RunWhen.ALL_SETTLED)
    driver = CoreDriver(make_workflow(tidy, make_node("a"), timeout_seconds=10)).start()
    driver.cancel()

    assert changed_by(driver, fired("", "timeout")) == []
    driver.finish("tidy")
    assert driver.root.state is X.CANCELLED


def test_a_repeated_creation_of_a_finished_child_reports_its_end_again() -> None:
    driver = CoreDriver(
        make_workflow(make_node("sub", handler="workflow", child=make_workflow(make_node("c"))))
    ).start()
    child = driver.execution(make_child_id(ref("sub"), 1))
    driver.finish_all(lambda _task: "done")
    again = c.CreateExecution(
        execution_id=child.id,
        workflow="test",
        definition=child.graph.hash,
        version=1,
        parent=child.parent,
        created_at=1.0,
    )

    inputs = DecisionInputs(driver.now, Nonce("late"), driver)
    decision = decide(child, driver.agendas[child.id], again, inputs)

    [notification] = [
        effect.command for effect in decision.effects if isinstance(effect, SendCommand)
    ]
    assert isinstance(notification, c.ChildSettled)
    assert (notification.state, notification.output and notification.output.decode()) == (
        X.COMPLETED,
        "done",
    )
    assert decision.events == []


class SlowStore(CoreDriver):
    """A driver that requests the offload of an output but never writes it."""

    def __init__(self, definition: Workflow, *, policy: EnginePolicy) -> None:
        super().__init__(definition, policy=policy)
        self.under_way: list[StoreOutput] = []

    def _apply(self, effect: Effect, following: deque[c.Command]) -> None:
        if isinstance(effect, StoreOutput):
            self.under_way.append(effect)
        else:
            super()._apply(effect, following)


def test_a_large_output_is_written_once_despite_other_commands() -> None:
    driver = SlowStore(
        make_workflow(make_node("a"), output="{{ a }}"), policy=EnginePolicy(inline_bytes_max=9)
    )
    driver.start()
    driver.finish("a", "x" * 100)

    driver.signal("go", signal_id="s1")
    driver.send(c.BlobLoaded(execution_id=ROOT))

    [under_way] = driver.under_way
    assert under_way.key.startswith(f"{ROOT}/output/")
    assert driver.root.state is X.RUNNING


class UnreportedBlobs(CoreDriver):
    """A driver that loads blobs at once but never sends BlobLoaded."""

    def _apply(self, effect: Effect, following: deque[c.Command]) -> None:
        if isinstance(effect, LoadBlob):
            self.loaded[effect.key] = self.blobs[effect.key]
        else:
            super()._apply(effect, following)


@pytest.mark.parametrize(
    ("fields", "items"), [({"for_each": "a.items"}, [0, 1]), ({"condition": "a.ok"}, [NO_ITEM])]
)
def test_a_clean_up_that_began_before_blob_loaded_arrived_begins_once(
    fields: dict[str, str], items: list[int]
) -> None:
    clean_up = make_node("c", "a", run_when=RunWhen.ALL_SETTLED, **fields)
    driver = UnreportedBlobs(make_workflow(make_node("a"), make_node("b"), clean_up)).start()
    driver.finish_with_blob("a", {"items": [1, 2], "ok": True})

    driver.cancel()
    driver.send(c.BlobLoaded(execution_id=ROOT))

    assert [token.item for token in driver.issued if token.node_id == "c"] == items


def test_a_takeover_does_not_change_an_execution_that_waits_for_its_trigger() -> None:
    driver = CoreDriver(make_workflow(make_node("a"), timeout_seconds=10)).start(is_held=True)

    driver.take_over()
    before = [*driver.tasks, *driver.timers]
    driver.trigger({"n": 1})

    assert before == []
    assert driver.queued() == ["a"]
    assert driver.tasks[driver.token("a")].execution_input.decode() == {"n": 1}
