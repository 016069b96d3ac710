"""Handing out work: a slot, a concurrency key if the node has one, then a task."""

from collections.abc import Iterator, Mapping

import msgspec

from runnel.core.commands import AcquireLimit
from runnel.core.decide.turn import NAME_CHARS_MAX, Evaluated, Turn, evaluate, shown
from runnel.core.effects import IssueTask, ShareValues, Task
from runnel.core.events import NodeQueued, NodeWaits, Wait
from runnel.core.execution import PENDING, NodeRun
from runnel.core.graph import CompiledNode
from runnel.core.ids import NO_ITEM, NodeId, Nonce, Token
from runnel.core.values import NO_DATA, Json, Value
from runnel.core.workflow import CORE_HANDLERS, ErrorInfo

# What all items of a map carry: put aside once when that is too much, and named by their tasks.

INPUT = "input"


def shared_values(turn: Turn, index: int, count: int) -> dict[str, Value] | None:
    """By their names in templates; None while they are written: the node is looked at again then.

    Decided here and not where a value is made, because only now it is known how many will carry it.
    """
    execution = turn.execution
    large = {
        name: value for name, value in _carried(turn, index) if _is_too_much(turn, value, count)
    }
    missing = {name: value for name, value in large.items() if name not in execution.aside}
    if missing:
        execution.awaited_blobs[index, NO_ITEM] = None
        _write(turn, missing)
        return None
    return {name: execution.aside[name] for name in large}


def _write(turn: Turn, values: dict[str, Value]) -> None:
    """Once, however many maps wait: 30 that began together wrote 465 times instead of 30."""
    execution = turn.execution
    new = {name: value for name, value in values.items() if name not in execution.sharing}
    if new:
        execution.sharing.update(dict.fromkeys(new))
        turn.effects.append(ShareValues(execution.id, new, turn.moment.nonce))


def _carried(turn: Turn, index: int) -> Iterator[tuple[str, Value]]:
    """Nothing, if no worker runs the items."""
    execution = turn.execution
    compiled = execution.graph.nodes[index]
    if compiled.node.handler in CORE_HANDLERS:
        return
    yield INPUT, execution.input
    for need in execution.needs(index):
        output = execution.nodes[need].output
        if output is not None:
            yield execution.graph.nodes[need].node.id, output


def _is_too_much(turn: Turn, value: Value, count: int) -> bool:
    policy = turn.moment.policy
    return (
        value.blob is None
        and value.size > policy.shared_bytes_max
        and value.size * count > policy.inline_bytes_max
    )


_encoder = msgspec.json.Encoder()
_NOTHING: Mapping[str, Value] = {}


def has_slot(turn: Turn) -> bool:
    execution = turn.execution
    window = turn.moment.policy.window
    return execution.in_flight < min(execution.graph.workflow.max_concurrency or window, window)


def issue(turn: Turn, index: int, item: int = NO_ITEM) -> ErrorInfo | None:
    """Issues the next attempt, which has a slot; an ErrorInfo when its key can't be evaluated."""
    execution = turn.execution
    compiled = execution.graph.nodes[index]
    if compiled.concurrency_key is None:
        run = execution.run(index, item) or PENDING
        queue_task(turn, index, item, attempt=run.attempt + 1, nonce=turn.moment.nonce)
        return None
    key = _limit_key(turn, index, item)
    if isinstance(key, ErrorInfo):
        return key
    if key is not None:
        wait_for_limit(turn, index, item, key)
    return None


def wait_for_limit(turn: Turn, index: int, item: int, key: str) -> None:
    """Asks for the key; the attempt that will hold it is named already, so it can be released."""
    execution = turn.execution
    compiled = execution.graph.nodes[index]
    run = execution.run(index, item) or PENDING
    nonce = turn.moment.nonce
    turn.emit(
        NodeWaits(
            node=compiled.node.id,
            item=item,
            wait=Wait.LIMIT,
            detail=key,
            attempt=run.attempt + 1,
            nonce=nonce,
        )
    )
    holder = Token(execution.id, compiled.node.id, item, run.attempt + 1, nonce)
    turn.tell(AcquireLimit(key=key, limit=compiled.node.concurrency_limit, holder=holder))


def queue_task(
    turn: Turn, index: int, item: int, *, attempt: int, nonce: Nonce, key: str = ""
) -> None:
    execution = turn.execution
    compiled = execution.graph.nodes[index]
    node_id = compiled.node.id
    event = NodeQueued(node=node_id, item=item, attempt=attempt, nonce=nonce, key=key)
    turn.emit(event)
    token = Token(execution.id, node_id, item, attempt, nonce)
    run = execution.run(index, item) or PENDING
    turn.effects.append(IssueTask(_task(turn, compiled, token, run)))


def _task(turn: Turn, compiled: CompiledNode, token: Token, run: NodeRun) -> Task:
    execution, node = turn.execution, compiled.node
    tag = node.resource_tag
    limit = None if tag is None else execution.graph.workflow.rate_limits.get(tag)
    given = execution.configs.get(compiled.index)
    shared = _NOTHING if token.item == NO_ITEM else execution.maps[compiled.index].shared
    return Task(
        token=token,
        handler=node.handler,
        queue=compiled.queue,
        config=compiled.config_raw if given is None else given.raw,
        inputs=_outputs(turn, execution.needs(compiled.index), shared),
        parents=_completed(turn, compiled.parents),
        execution_input=shared.get(INPUT, execution.input),
        workflow=execution.graph.workflow.name,
        version=execution.version,
        labels=execution.labels,
        execution_started_at=execution.started_at or execution.created_at,
        item=_item(turn, compiled.index, token.item),
        timeout_s=node.timeout_seconds,
        soft_timeout_s=node.soft_timeout_seconds,
        resource_tag=tag,
        rate_per_second=limit.rate_per_second if limit else None,
        burst=limit.burst if limit else 1,
        cache_key=compiled.cache_key,
        cache_ttl_s=node.cache.ttl_seconds if node.cache else 0.0,
        failures=run.failures,
        issued_at=turn.now,
    )


def _outputs(
    turn: Turn, needs: tuple[int, ...], shared: Mapping[str, Value]
) -> dict[NodeId, Value]:
    """Outputs of the parents, then of whatever else the config names, by reference."""
    if not needs:
        return {}
    nodes, graph = turn.execution.nodes, turn.execution.graph.nodes
    return {
        (node_id := graph[index].node.id): shared.get(node_id, output)
        for index in needs
        if (output := nodes[index].output) is not None
    }


def _completed(turn: Turn, parents: tuple[int, ...]) -> int:
    """How many of the inputs are parents: those that were skipped have no output."""
    nodes = turn.execution.nodes
    return len([parent for parent in parents if nodes[parent].output is not None])


def _item(turn: Turn, index: int, item: int) -> msgspec.Raw:
    if item == NO_ITEM:
        return NO_DATA
    return msgspec.Raw(_encoder.encode(item_value(turn, index, item)))


def item_value(turn: Turn, index: int, item: int) -> Json:
    items = turn.execution.maps[index].items
    return None if items is None else items[item]


def _limit_key(turn: Turn, index: int, item: int) -> str | ErrorInfo | None:
    """None when a blob must be loaded first: evaluated again once it is there."""
    compiled = turn.execution.graph.nodes[index]
    found = evaluate(turn, index, compiled.concurrency_key, item=item)
    if not isinstance(found, Evaluated):
        return found
    key = str(found.value) if type(found.value) in (str, int) else ""
    if 0 < len(key) <= NAME_CHARS_MAX:
        return key
    wanted = f"a number or a text of 1 to {NAME_CHARS_MAX} characters"
    message = f"concurrency_key gave {shown(found.value)}, expected {wanted}"
    return ErrorInfo(type="TemplateError", message=message, retryable=False)
