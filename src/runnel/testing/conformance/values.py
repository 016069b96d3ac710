"""The smallest values of each kind, told apart by a name."""

import msgspec

from runnel.core.commands import CancelExecution, TaskCompleted
from runnel.core.effects import DeadLetter, Task, TimerKey, TimerKind
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, Token
from runnel.core.retry import ErrorInfo
from runnel.core.states import ExecutionState
from runnel.core.values import EMPTY_OBJECT, inline
from runnel.ports.store import Header, TimerSet

ROOT = ExecutionId("x1")
LIMIT = "limit:gpu"


def token(node: str, *, attempt: int = 1, execution_id: ExecutionId = ROOT) -> Token:
    return Token(execution_id, NodeId(node), NO_ITEM, attempt, Nonce("n"))


def task(node: str, *, queue: str = "default", attempt: int = 1) -> Task:
    return Task(
        token=token(node, attempt=attempt),
        handler="h",
        queue=queue,
        config=msgspec.Raw(b"{}"),
        execution_input=EMPTY_OBJECT,
        workflow="w",
        version=1,
        execution_started_at=1.0,
        timeout_s=300.0,
        issued_at=1.0,
    )


def done(node: str, *, attempt: int = 1, output: str = "out") -> TaskCompleted:
    return TaskCompleted(token=token(node, attempt=attempt), output=inline(output))


def message(text: str) -> CancelExecution:
    """A command whose only point is that it can be recognized."""
    return CancelExecution(execution_id=ROOT, reason=text)


def header(
    execution_id: str = ROOT,
    *,
    state: ExecutionState = ExecutionState.RUNNING,
    created_at: float = 1.0,
    workflow: str = "w",
    parent: str | None = None,
) -> Header:
    return Header(
        execution_id=ExecutionId(execution_id),
        workflow=workflow,
        version=1,
        definition="hash",
        state=state,
        created_at=created_at,
        parent_id=None if parent is None else ExecutionId(parent),
        labels={"team": "a"},
    )


def timer(node: str, *, due: float, attempt: int = 1) -> TimerSet:
    return TimerSet(key=timer_key(node), due=due, attempt=attempt)


def timer_key(node: str) -> TimerKey:
    return TimerKey(ROOT, NodeId(node), NO_ITEM, TimerKind.RETRY)


def letter(node: str, *, rejected_at: float = 1.0) -> DeadLetter:
    return DeadLetter(
        token=token(node),
        queue="default",
        handler="h",
        config=msgspec.Raw(b'{"big":12345678901234567890,"empty":[]}'),
        error=ErrorInfo("ValueError", "no"),
        reason="failed",
        rejected_at=rejected_at,
    )
