"""Starts attempts: checks for a slot, requests the concurrency key of the node, and issues the
task.
"""

from collections.abc import Iterator, Mapping

import msgspec

from runnel.core.commands import AcquireLimit
from runnel.core.decide.decision_context import (
    NAME_CHARS_MAX,
    DecisionContext,
    EvaluatedValue,
    evaluate_template,
    preview_json,
)
from runnel.core.decide.outcomes import fail_node
from runnel.core.decide.waits import start_core_handler
from runnel.core.effects import INPUT, IssueTask, ShareValues, TaskMessage
from runnel.core.events import NodeQueued, NodeWaits, Wait
from runnel.core.execution import PENDING_RUN, NodeRun
from runnel.core.graph import CompiledNode
from runnel.core.ids import NO_ITEM, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.core.states import NodeState
from runnel.core.values import NO_DATA, Value
from runnel.core.workflow import CORE_HANDLERS

# -- values that all items of a map carry: offloaded once if they are large ----------------


def prepare_shared_values(
    context: DecisionContext, index: int, count: int
) -> dict[str, Value] | None:
    """Returns the offloaded values of a map by their names in templates.

    Returns None while these values are being written.

    The node is evaluated again once the values are written. Offloading is decided when a map
    starts, because only then the number of tasks that carry a value is known.
    """
    large = {
        name: value
        for name, value in _list_task_values(context, index)
        if _is_worth_offloading(context, value, count)
    }
    # Values in the agenda were written after the last map began, so they are newer.
    offloaded = context.execution.offloaded_values | context.agenda.offloaded_values
    missing = {name: value for name, value in large.items() if name not in offloaded}
    if missing:
        context.agenda.awaited_blobs[index, NO_ITEM] = None
        _request_offload(context, missing)
        return None
    return {name: offloaded[name] for name in large}


def _request_offload(context: DecisionContext, values: dict[str, Value]) -> None:
    """Requests each offload once, for any number of maps.

    Without this, 30 maps that began together wrote 465 blobs instead of 30.
    """
    pending = context.agenda.pending_offloads
    new = {name: value for name, value in values.items() if name not in pending}
    if new:
        pending.update(dict.fromkeys(new))
        context.effects.append(ShareValues(context.execution.id, new, context.inputs.nonce))


def _list_task_values(context: DecisionContext, index: int) -> Iterator[tuple[str, Value]]:
    """Yields the values that the tasks of a map's items carry.

    Yields nothing if no worker runs the items.
    """
    execution = context.execution
    compiled = execution.graph.nodes[index]
    if compiled.node.handler in CORE_HANDLERS:
        return
    yield INPUT, execution.input
    for need in execution.needs(index):
        output = execution.nodes[need].output
        if output is not None:
            yield execution.graph.nodes[need].node.id, output


def _is_worth_offloading(context: DecisionContext, value: Value, count: int) -> bool:
    policy = context.inputs.policy
    return (
        value.blob is None
        and value.size > policy.shared_bytes_max
        and value.size * count > policy.inline_bytes_max
    )


_encoder = msgspec.json.Encoder()
_NO_SHARED_VALUES: Mapping[str, Value] = {}


def has_slot(context: DecisionContext) -> bool:
    execution = context.execution
    window = context.inputs.policy.in_flight_max
    return execution.in_flight < min(execution.graph.workflow.max_concurrency or window, window)


def start_attempt(context: DecisionContext, index: int, item: int) -> None:
    """Starts the next attempt of a node or item.

    Fails the node or item if its key can't be evaluated. The caller has checked that a slot is
    free.
    """
    if context.execution.graph.nodes[index].node.handler in CORE_HANDLERS:
        start_core_handler(context, index, item)
        return
    error = _issue_attempt(context, index, item)
    if error is not None:
        fail_node(context, index, error, item=item)


def _issue_attempt(context: DecisionContext, index: int, item: int) -> ErrorInfo | None:
    """Queues the task, or requests its concurrency key.

    Returns an ErrorInfo if the key can't be evaluated.
    """
    execution = context.execution
    compiled = execution.graph.nodes[index]
    if compiled.concurrency_key is None:
        run = execution.run(index, item) or PENDING_RUN
        queue_task(context, index, item, attempt=run.attempt + 1, nonce=context.inputs.nonce)
        return None
    key = _evaluate_concurrency_key(context, index, item)
    if isinstance(key, ErrorInfo):
        return key
    if key is not None:
        wait_for_limit(context, index, item, key)
    return None


def wait_for_limit(context: DecisionContext, index: int, item: int, key: str) -> None:
    """Requests the concurrency key for the next attempt.

    The NodeWaits event names the next attempt, so that its key can be released later.
    """
    execution = context.execution
    compiled = execution.graph.nodes[index]
    run = execution.run(index, item) or PENDING_RUN
    nonce = context.inputs.nonce
    context.emit(
        NodeWaits(
            node=compiled.node.id,
            item=item,
            wait=Wait.LIMIT,
            detail=key,
            attempt=run.attempt + 1,
            nonce=nonce,
        )
    )
    holder = TaskToken(execution.id, compiled.node.id, item, run.attempt + 1, nonce)
    context.send(AcquireLimit(key=key, limit=compiled.node.concurrency_limit, holder=holder))


def queue_task(
    context: DecisionContext, index: int, item: int, *, attempt: int, nonce: Nonce, key: str = ""
) -> None:
    execution = context.execution
    compiled = execution.graph.nodes[index]
    node_id = compiled.node.id
    event = NodeQueued(node=node_id, item=item, attempt=attempt, nonce=nonce, key=key)
    context.emit(event)
    token = TaskToken(execution.id, node_id, item, attempt, nonce)
    run = execution.run(index, item) or PENDING_RUN
    context.effects.append(IssueTask(_build_task(context, compiled, token, run)))


def _build_task(
    context: DecisionContext, compiled: CompiledNode, token: TaskToken, run: NodeRun
) -> TaskMessage:
    execution, node = context.execution, compiled.node
    tag = node.resource_tag
    limit = None if tag is None else execution.graph.workflow.rate_limits.get(tag)
    override = execution.configs.get(compiled.index)
    is_item = token.item != NO_ITEM
    shared = execution.maps[compiled.index].shared if is_item else _NO_SHARED_VALUES
    needs = compiled.needs if override is None else override.needs
    inputs = _collect_outputs(context, needs, shared) if needs else {}
    started_at = execution.started_at or execution.created_at
    is_wide = execution.in_flight > WIDE_TASKS
    return TaskMessage(
        token=token,
        handler=node.handler,
        queue=compiled.queue,
        config=compiled.config_raw if override is None else override.raw,
        inputs=inputs,
        skipped=() if len(inputs) == len(needs) else _list_skipped(context, needs),
        parents=_count_parents_with_output(context, compiled.parents) if needs else 0,
        execution_input=shared.get(INPUT, execution.input),
        workflow=execution.graph.workflow.name,
        version=execution.version,
        labels=execution.labels,
        execution_started_at=started_at,
        item=_encode_item(context, compiled.index, token.item) if is_item else NO_DATA,
        timeout_s=node.timeout_seconds,
        soft_timeout_s=node.soft_timeout_seconds,
        resource_tag=tag,
        rate_per_second=limit.rate_per_second if limit else None,
        burst=limit.burst if limit else 1,
        cache_key=compiled.cache_key,
        cache_ttl_s=node.cache.ttl_seconds if node.cache else 0.0,
        failures=run.failures,
        losses=run.losses,
        issued_at=context.inputs.now,
        priority=execution.priority,
        place=_compute_late_place(context) if is_wide and token.attempt == 1 else started_at,
    )


# An execution with more tasks in flight than this is wide, for example because of a large map.
WIDE_TASKS = 16
# The number of tasks of a wide execution that count as one second of age.
WIDE_TASKS_PER_SECOND = 16


def _compute_late_place(context: DecisionContext) -> float:
    """Returns the place in its queue of a further task of a wide execution.

    The place of other tasks is the start of their execution. Executions that have started therefore
    finish before younger executions of the workflow begin. The further tasks of a wide execution
    get later places, each a little later than the one before, so that a younger execution does not
    wait for all of them. A task that is issued again keeps the place of its execution.
    """
    extra = context.execution.in_flight - WIDE_TASKS
    return context.now + extra / WIDE_TASKS_PER_SECOND


def _collect_outputs(
    context: DecisionContext, needs: tuple[int, ...], shared: Mapping[str, Value]
) -> dict[NodeId, Value]:
    """Returns the outputs of the parents, then of the other nodes that the config names."""
    nodes, graph = context.execution.nodes, context.execution.graph.nodes
    return {
        (node_id := graph[index].node.id): shared.get(node_id, output)
        for index in needs
        if (output := nodes[index].output) is not None
    }


def _list_skipped(context: DecisionContext, needs: tuple[int, ...]) -> tuple[NodeId, ...]:
    nodes, graph = context.execution.nodes, context.execution.graph.nodes
    return tuple(graph[need].node.id for need in needs if nodes[need].state is NodeState.SKIPPED)


def _count_parents_with_output(context: DecisionContext, parents: tuple[int, ...]) -> int:
    """Returns the number of parents with an output. A skipped parent has no output."""
    nodes = context.execution.nodes
    return len([parent for parent in parents if nodes[parent].output is not None])


def _encode_item(context: DecisionContext, index: int, item: int) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(context.agenda.get_item(index, item)))


def _evaluate_concurrency_key(
    context: DecisionContext, index: int, item: int
) -> str | ErrorInfo | None:
    """Returns the concurrency key, or the error of its evaluation.

    Returns None if a blob must be loaded first; the key is then evaluated again later.
    """
    compiled = context.execution.graph.nodes[index]
    evaluated = evaluate_template(context, index, compiled.concurrency_key, item=item)
    if not isinstance(evaluated, EvaluatedValue):
        return evaluated
    key = str(evaluated.value) if type(evaluated.value) in (str, int) else ""
    if 0 < len(key) <= NAME_CHARS_MAX:
        return key
    expected = f"a number or a text of 1 to {NAME_CHARS_MAX} characters"
    message = f"concurrency_key gave {preview_json(evaluated.value)}, expected {expected}"
    return ErrorInfo(type="TemplateError", message=message, retryable=False)
