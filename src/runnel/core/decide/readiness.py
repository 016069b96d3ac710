"""Advances an execution: evaluates nodes whose parents are settled, and issues their tasks.

The functions of this module use worklists and never recurse, because a chain may have 100,000
skipped nodes.
"""

from runnel.core.decide.decision_context import DecisionContext, evaluate_template
from runnel.core.decide.maps import NEXT_MAP_ITEMS, issue_next_items, start_map
from runnel.core.decide.outcomes import close_execution, fail_node, finish_settled_execution
from runnel.core.decide.task_dispatch import has_slot, start_attempt
from runnel.core.decide.waits import start_core_handler
from runnel.core.events import NodeSkipped, NodeWaits, Wait
from runnel.core.graph import CompiledNode
from runnel.core.ids import NO_ITEM
from runnel.core.retry import MESSAGE_CHARS_MAX, ErrorInfo
from runnel.core.run_when import (
    ParentOutcome,
    RunWhen,
    SkipReason,
    WhenNotMet,
    apply_run_when,
    classify_parent_outcome,
    describe_rule_not_met,
)
from runnel.core.states import ExecutionState, NodeState
from runnel.core.templates.template import is_true
from runnel.core.workflow import CHILD_WORKFLOW, CORE_HANDLERS, OnFailure

# The handlers that need no slot. A child execution needs a slot, like a task.
_SLOTLESS = CORE_HANDLERS - {CHILD_WORKFLOW}
# Bound to names, because each access to a member of an enum takes 0.1 µs, of 13 µs for a command.
_RUNNING = ExecutionState.RUNNING
_PENDING, _COMPLETED = NodeState.PENDING, NodeState.COMPLETED
_ONE_FAILED = RunWhen.ONE_FAILED


def advance_execution(context: DecisionContext) -> None:
    """Evaluates nodes and issues tasks until nothing more is possible now.

    Every command ends with this step.
    """
    execution = context.execution
    while execution.state is _RUNNING:
        if execution.first_failed is not None and _close_on_first_failure(context):
            continue
        if context.to_evaluate:
            _evaluate_node(context, context.to_evaluate.popleft())
        elif not _issue_next_ready(context):
            break
    is_settled = execution.state is _RUNNING and not execution.unsettled_count
    if is_settled and (not execution.stopping or execution.is_abrupt):
        finish_settled_execution(context)


def _evaluate_node(context: DecisionContext, index: int) -> None:
    """Skips or starts a node whose parents are all settled.

    The node stays PENDING if it needs a blob first.
    """
    execution = context.execution
    run = execution.nodes[index]
    if run.state is not _PENDING or execution.unsettled_parents[index]:
        return
    if execution.stopping and _must_wait_for_code(context, index):
        return
    compiled = execution.graph.nodes[index]
    awaited_blobs = context.agenda.awaited_blobs
    if awaited_blobs:
        # The blob may already be in memory before the command BlobLoaded arrives. The command
        # BlobLoaded must not evaluate a node again that has started.
        awaited_blobs.pop((index, NO_ITEM), None)
    reason = _find_skip_reason(context, compiled)
    if reason is None and compiled.condition is not None:
        evaluated = evaluate_template(context, index, compiled.condition)
        if evaluated is None:
            return
        if isinstance(evaluated, ErrorInfo):
            fail_node(context, index, evaluated)
            return
        reason = None if is_true(evaluated.value) else SkipReason.CONDITION_FALSE
    if reason is None:
        _start_node(context, index)
        return
    detail = (
        describe_rule_not_met(compiled.node.run_when) if reason is SkipReason.RULE_NOT_MET else ""
    )
    is_rule = reason is not SkipReason.CONDITION_FALSE
    if is_rule and compiled.node.when_not_met is WhenNotMet.FAIL:
        message = f"{detail or reason} (when_not_met: fail)"
        error = ErrorInfo(type="RunWhenNotMet", message=message, retryable=False)
        fail_node(context, index, error)
        return
    context.emit(NodeSkipped(node=compiled.node.id, reason=reason, detail=detail))
    context.queue_ready_children(index)


def _find_skip_reason(context: DecisionContext, compiled: CompiledNode) -> SkipReason | None:
    """Returns the reason to skip the node, or None if `run_when` lets the node run.

    If all parents completed, only `one_failed` can skip the node.
    """
    nodes = context.execution.nodes
    rule = compiled.node.run_when
    for parent in compiled.parents:
        if nodes[parent].state is not _COMPLETED or rule is _ONE_FAILED:
            return apply_run_when(rule, _list_parent_outcomes(context, compiled))
    return None


def _list_parent_outcomes(context: DecisionContext, compiled: CompiledNode) -> list[ParentOutcome]:
    nodes = context.execution.nodes
    return [
        classify_parent_outcome(nodes[parent].state, nodes[parent].attempt, nodes[parent].skip)
        for parent in compiled.parents
    ]


def _start_node(context: DecisionContext, index: int) -> None:
    compiled = context.execution.graph.nodes[index]
    if compiled.for_each is not None:
        start_map(context, index)
    elif compiled.node.handler in _SLOTLESS:
        start_core_handler(context, index)
    else:
        make_ready(context, index)


def make_ready(context: DecisionContext, index: int, item: int = NO_ITEM) -> None:
    """Starts the node or item if there is a slot.

    Adds the node or item to the ready queue if no slot is free.

    A new owner of the partition must find a retry that waits for a slot after its timer fired. So
    an event NodeWaits with `slot` records such a retry. A PENDING node needs no such event: a new
    owner finds the node through its settled parents.
    """
    execution, ready = context.execution, context.agenda.ready
    if has_slot(context) and not ready:
        start_attempt(context, index, item)
        return
    run = execution.run(index, item)
    if run is not None and run.state is NodeState.WAITING and run.wait is not Wait.SLOT:
        node_id = execution.graph.nodes[index].node.id
        context.emit(NodeWaits(node=node_id, item=item, wait=Wait.SLOT))
    ready.append((index, item))


def _issue_next_ready(context: DecisionContext) -> bool:
    """Issues the next entry of the ready queue.

    Returns False if the queue is empty or no slot is free.
    """
    ready = context.agenda.ready
    if not ready or not has_slot(context):
        return False
    index, item = ready.popleft()
    if item == NEXT_MAP_ITEMS:
        issue_next_items(context, index)
    elif _is_still_ready(context, index, item) and not _must_wait_for_code(context, index):
        start_attempt(context, index, item)
    return True


def _must_wait_for_code(context: DecisionContext, index: int) -> bool:
    """Returns True for a clean-up node that is to start while stopped code still runs.

    The node is evaluated again once all stopped code has ended.
    """
    execution = context.execution
    is_clean_up = execution.graph.nodes[index].is_clean_up
    return is_clean_up and bool(execution.stopping) and execution.nodes[index].state is _PENDING


def _is_still_ready(context: DecisionContext, index: int, item: int) -> bool:
    run = context.execution.run(index, item)
    return run is not None and (run.state is NodeState.PENDING or run.wait is Wait.SLOT)


def _close_on_first_failure(context: DecisionContext) -> bool:
    """Closes a `fail_fast` execution after its first failed node.

    Returns True if this call closed the execution.
    """
    execution = context.execution
    if execution.outcome is not None or execution.first_failed is None:
        return False
    if execution.graph.workflow.on_failure is not OnFailure.FAIL_FAST:
        return False
    index = execution.first_failed
    cause = execution.nodes[index].error
    node_id = execution.graph.nodes[index].node.id
    message = f"node '{node_id}' failed: {cause}"[:MESSAGE_CHARS_MAX]
    close_execution(context, ExecutionState.FAILED, ErrorInfo(type="NodeFailed", message=message))
    return True
