"""How an execution goes on: settled parents → evaluated → issued, until nothing is left.

Everything here is a loop over worklists, never a recursion: a chain of 100,000 skipped nodes is
one long list.
"""

from runnel.core.decide.ending import close, fail_node, finish
from runnel.core.decide.issue import has_slot, issue
from runnel.core.decide.maps import MAP_NEXT, issue_next_items, start_map
from runnel.core.decide.turn import Turn, evaluate
from runnel.core.decide.waits import begin_core_handler
from runnel.core.events import NodeSkipped, NodeWaits, Wait
from runnel.core.graph import CompiledNode
from runnel.core.ids import NO_ITEM
from runnel.core.states import ExecutionState, NodeState
from runnel.core.templates.template import is_true
from runnel.core.workflow import (
    CHILD_WORKFLOW,
    CORE_HANDLERS,
    MESSAGE_CHARS_MAX,
    ErrorInfo,
    OnFailure,
    ParentOutcome,
    RunWhen,
    SkipReason,
    judge,
    outcome_of,
)

# They begin at once: a child takes a slot, like a task.
_SLOTLESS = CORE_HANDLERS - {CHILD_WORKFLOW}
# Looked up once: as members of their enums they take 0.1 µs each time, of 13 for a command.
_RUNNING = ExecutionState.RUNNING
_PENDING, _COMPLETED = NodeState.PENDING, NodeState.COMPLETED
_ONE_FAILED = RunWhen.ONE_FAILED


def proceed(turn: Turn) -> None:
    """Does everything that can be done now; the last step of every command."""
    execution = turn.execution
    while execution.state is _RUNNING:
        if execution.first_failed is not None and _fail_fast(turn):
            continue
        if turn.to_evaluate:
            _evaluate(turn, turn.to_evaluate.popleft())
        elif not _use_slot(turn):
            break
    if execution.state is _RUNNING and not execution.remaining:
        finish(turn)


def _evaluate(turn: Turn, index: int) -> None:
    """A node whose parents are all settled: skipped, begun, or waiting for a blob."""
    execution = turn.execution
    run = execution.nodes[index]
    if run.state is not _PENDING or execution.unsettled[index]:
        return
    if execution.awaited_blobs:
        # What it waited for may be here before BlobLoaded, which must not find it begun.
        execution.awaited_blobs.pop((index, NO_ITEM), None)
    compiled = execution.graph.nodes[index]
    reason = _why_not(turn, compiled)
    if reason is None and compiled.condition is not None:
        found = evaluate(turn, index, compiled.condition)
        if found is None:
            return
        if isinstance(found, ErrorInfo):
            fail_node(turn, index, found)
            return
        reason = None if is_true(found.value) else SkipReason.CONDITION_FALSE
    if reason is None:
        _begin(turn, index)
        return
    turn.emit(NodeSkipped(node=compiled.node.id, reason=reason))
    turn.settled(index)


def _why_not(turn: Turn, compiled: CompiledNode) -> SkipReason | None:
    """None means run. Parents that all completed need no judging, unless for a `one_failed`."""
    nodes = turn.execution.nodes
    rule = compiled.node.run_when
    for parent in compiled.parents:
        if nodes[parent].state is not _COMPLETED or rule is _ONE_FAILED:
            return judge(rule, _outcomes(turn, compiled))
    return None


def _outcomes(turn: Turn, compiled: CompiledNode) -> list[ParentOutcome]:
    nodes = turn.execution.nodes
    return [
        outcome_of(nodes[parent].state, nodes[parent].attempt, nodes[parent].skip)
        for parent in compiled.parents
    ]


def _begin(turn: Turn, index: int) -> None:
    compiled = turn.execution.graph.nodes[index]
    if compiled.for_each is not None:
        start_map(turn, index)
    elif compiled.node.handler in _SLOTLESS:
        begin_core_handler(turn, index)
    else:
        make_ready(turn, index)


def make_ready(turn: Turn, index: int, item: int = NO_ITEM) -> None:
    """Issues it if there is a slot, otherwise it stands in line.

    A node that is in no state from which a takeover would find it again (an over-due retry) is
    recorded as waiting for a slot; a PENDING one is found by its settled parents.
    """
    execution = turn.execution
    if has_slot(turn) and not execution.ready:
        _issue(turn, index, item)
        return
    run = execution.run(index, item)
    if run is not None and run.state is NodeState.WAITING and run.wait is not Wait.SLOT:
        node_id = execution.graph.nodes[index].node.id
        turn.emit(NodeWaits(node=node_id, item=item, wait=Wait.SLOT))
    execution.ready.append((index, item))


def _use_slot(turn: Turn) -> bool:
    """Issues the next in line; False when there is none, or no slot."""
    execution = turn.execution
    if not execution.ready or not has_slot(turn):
        return False
    index, item = execution.ready.popleft()
    if item == MAP_NEXT:
        issue_next_items(turn, index)
    elif _is_still_ready(turn, index, item):
        _issue(turn, index, item)
    return True


def _is_still_ready(turn: Turn, index: int, item: int) -> bool:
    run = turn.execution.run(index, item)
    return run is not None and (run.state is NodeState.PENDING or run.wait is Wait.SLOT)


def _issue(turn: Turn, index: int, item: int) -> None:
    compiled = turn.execution.graph.nodes[index]
    if compiled.node.handler in CORE_HANDLERS:
        begin_core_handler(turn, index, item)
        return
    error = issue(turn, index, item)
    if error is not None:
        fail_node(turn, index, error, item=item)


def _fail_fast(turn: Turn) -> bool:
    """Closes the execution at its first failed node; True when there is more to do after that."""
    execution = turn.execution
    if execution.outcome is not None or execution.first_failed is None:
        return False
    if execution.graph.workflow.on_failure is not OnFailure.FAIL_FAST:
        return False
    index = execution.first_failed
    cause = execution.nodes[index].error
    node_id = execution.graph.nodes[index].node.id
    message = f"node '{node_id}' failed: {cause}"[:MESSAGE_CHARS_MAX]
    close(turn, ExecutionState.FAILED, ErrorInfo(type="NodeFailed", message=message))
    return True
