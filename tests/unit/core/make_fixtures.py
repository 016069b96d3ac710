"""Writes the fixtures of the current format. Run it once per format, never for an old one."""

from pathlib import Path

from msgspec import Raw

from runnel.core import codec, commands, events
from runnel.core.ids import (
    NO_ITEM,
    DefinitionHash,
    ExecutionId,
    NodeId,
    NodeRef,
    Nonce,
    TaskToken,
)
from runnel.core.retry import ErrorInfo, RetryPolicy
from runnel.core.run_when import RunWhen, SkipReason
from runnel.core.states import ExecutionState
from runnel.core.values import make_blob_reference, make_inline_value
from runnel.core.workflow import ReusedResult, encode_workflow
from tests.core_driver import TRANSIENT, CoreDriver, make_node, make_workflow

FOLDER = Path(__file__).parent / "fixtures"
TOKEN = TaskToken(ExecutionId("e1"), NodeId("a"), NO_ITEM, 2, Nonce("n7"))
REF = NodeRef(ExecutionId("e1"), NodeId("a"), 3)
ERROR = ErrorInfo(
    type="ValueError", message="bad", types=("ValueError",), retryable=False, traceback="…"
)
E0, E1, A = ExecutionId("e0"), ExecutionId("e1"), NodeId("a")
TAKEN = [
    ReusedResult(A, output=make_inline_value([1])),
    ReusedResult(NodeId("b"), skip=SkipReason.BY_ITSELF, detail="empty"),
    ReusedResult(NodeId("each"), 3, output=make_blob_reference("e0/each/3", 10**6)),
]
HASH = DefinitionHash("0123")

COMMANDS: list[commands.Command] = [
    commands.CreateExecution(
        execution_id=E1,
        workflow="w",
        definition=HASH,
        version=2,
        input=make_inline_value({"k": [1, 2.5, None, "ü"]}),
        labels={"team": "x"},
        parent=TOKEN,
        is_held=True,
        created_at=5.0,
    ),
    commands.CreateExecution(
        execution_id=E1, workflow="w", definition=HASH, version=2, rerun_of=E0, created_at=5.0
    ),
    commands.TakeOver(execution_id=E1, part=2, taken=TAKEN, configs={A: Raw(b'{"x":1}')}),
    commands.StartExecution(execution_id=E1, input=make_inline_value(1)),
    commands.TaskStarted(token=TOKEN, worker="w1", started_at=6.5),
    commands.TaskCompleted(
        token=TOKEN, output=make_blob_reference("e1/a", 9), worker="w1", started_at=6.5
    ),
    commands.TaskCompleted(token=TOKEN, output=make_inline_value(1), is_cached=True),
    commands.TaskFailed(token=TOKEN, error=ERROR, worker="w1", started_at=6.5),
    commands.TaskSkipped(token=TOKEN, reason="nothing to do", worker="w1", started_at=6.5),
    commands.TaskLost(token=TOKEN, reason="gone", was_started=True),
    commands.TaskStopped(token=TOKEN),
    commands.TaskDeferred(token=TOKEN, until=99.0),
    commands.TimerFired(ref=REF, kind="retry", attempt=2),
    commands.SendSignal(execution_id=E1, name="go", payload=make_inline_value([]), signal_id="s1"),
    commands.CancelExecution(execution_id=E1, reason="why not"),
    commands.CancelExecution(execution_id=E1, awaited_by=TOKEN),
    commands.ChildSettled(
        token=TOKEN, child_id=ExecutionId("e1.a.2"), state=ExecutionState.FAILED, error=ERROR
    ),
    commands.AcquireLimit(key="k", limit=3, holder=TOKEN),
    commands.ReleaseLimit(key="k", holder=TOKEN),
    commands.ResumeLimit(key="k"),
    commands.LimitGranted(key="k", holder=TOKEN),
    commands.BlobLoaded(execution_id=E1),
    commands.OutputStored(ref=REF, output=make_blob_reference("e1/a/joined", 10**6)),
    commands.ValuesShared(execution_id=E1, values={"a": make_blob_reference("e1/a/shared", 9_000)}),
    commands.ResumeExecution(execution_id=E1),
    commands.FailExecution(execution_id=E1, error=ERROR),
]

EVENTS: list[events.AnyEvent] = [
    events.ExecutionCreated(
        execution_id=E1,
        workflow="w",
        version=1,
        definition=HASH,
        input=make_inline_value({}),
        labels={"a": "b"},
        parent=TOKEN,
        created_at=1.0,
    ),
    events.ExecutionCreated(
        execution_id=E1,
        workflow="w",
        version=1,
        definition=HASH,
        input=make_inline_value({}),
        rerun_of=E0,
        created_at=1.0,
    ),
    events.NodesTaken(part=2, taken=TAKEN, configs={A: Raw(b'{"x":1}')}),
    events.ExecutionStarted(input=make_inline_value({"x": 1})),
    events.NodeQueued(node=A, item=4, attempt=2, nonce=Nonce("n"), key="db"),
    events.NodeStarted(node=A, worker="w1", started_at=2.0),
    events.NodeCompleted(node=A, output=make_inline_value("out"), worker="w1", started_at=2.0),
    events.NodeCompleted(node=A, output=make_inline_value("out"), is_cached=True),
    events.NodeFailed(node=A, error=ERROR, worker="w1", started_at=2.0),
    events.NodeSkipped(node=A, reason=SkipReason.CONDITION_FALSE),
    events.NodeCancelled(node=A, item=1, reason="stop"),
    events.NodeCancelled(node=A, item=1, reason="stop", stop_due=12.0),
    events.CodeEnded(node=A, item=1, is_assumed=True),
    events.RetryPlanned(node=A, error=ERROR, due=9.0),
    events.TaskWasLost(node=A, reason="gone", was_started=True),
    events.NodeWaits(
        node=A, wait=events.Wait.SIGNAL, due=8.0, detail="go", attempt=1, nonce=Nonce("n")
    ),
    events.MapStarted(node=A, count=7),
    events.MapStarted(
        node=A, count=7, shared={"input": make_blob_reference("e1/input/shared", 9_000)}
    ),
    events.SignalReceived(signal_id="s1", name="go", payload=make_inline_value(None)),
    events.SignalConsumed(signal_id="s1", node=A),
    events.ExecutionClosing(outcome=ExecutionState.CANCELLED, error=ERROR, is_abrupt=True),
    events.ExecutionClosing(outcome=ExecutionState.CANCELLED, is_awaited=True),
    events.SlaMissed(sla_s=60.0),
    events.ExecutionFinished(state=ExecutionState.COMPLETED, output=make_inline_value(1)),
    events.LimitHeld(holder=TOKEN, limit=2),
    events.LimitQueued(holder=TOKEN, limit=2),
    events.LimitReleased(holder=TOKEN),
]


def history() -> CoreDriver:
    retry = RetryPolicy(max_retries=1, initial_delay=1, jitter=False)
    driver = CoreDriver(
        make_workflow(
            make_node("a", retry=retry),
            make_node("each", "a", for_each="a.items"),
            make_node("never", "a", condition="a.items | length > 9"),
            make_node("b", "each"),
            make_node("c", "each"),
            make_node("ok", handler="wait_for_signal", config={"signal": "go"}),
            make_node("tidy", "b", run_when=RunWhen.ALL_SETTLED),
        )
    ).start()
    driver.signal("go", {"by": "x"})
    driver.fail("a", TRANSIENT)
    driver.advance(1)
    driver.finish("a", {"items": [1, 2]})
    driver.finish("each", 10, item=1)
    driver.lose("each", item=0)
    driver.finish("each", 5, item=0)
    driver.fail("b")
    driver.finish("tidy")
    return driver


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    driver = history()
    entries = driver.histories["e1"]
    definition = encode_workflow(driver.graph.workflow)
    (FOLDER / "history_v1.jsonl").write_bytes(b"\n".join([definition, *entries]) + b"\n")
    stored = [codec.encode_entry(3.5, [event]) for event in EVENTS]
    (FOLDER / "events_v1.jsonl").write_bytes(b"\n".join(stored) + b"\n")
    messages = [codec.encode_message(command) for command in COMMANDS]
    (FOLDER / "commands_v1.jsonl").write_bytes(b"\n".join(messages) + b"\n")


if __name__ == "__main__":
    main()
