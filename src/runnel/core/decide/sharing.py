"""What all items of a map carry: put aside once when that is too much, and named by their tasks."""

from collections.abc import Iterator

from runnel.core.decide.turn import Turn
from runnel.core.effects import ShareValues
from runnel.core.ids import NO_ITEM
from runnel.core.values import Value
from runnel.core.workflow import CORE_HANDLERS

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
