"""What an execution believes to be under way: all of it can be looked for in the store."""

from collections.abc import Iterator

import msgspec

from runnel.core.decide.finishing import execution_timer
from runnel.core.decide.turn import TIMER_OF_WAIT
from runnel.core.effects import TimerKey, TimerKind
from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, ExecutionId, Token
from runnel.engine.orchestrator.aggregates import is_idle


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """`tasks` are tokens, True for those that have begun; `limits` are keys by who waits for them.

    It `is_stuck` when nothing at all is under way, in memory or elsewhere, and it has not ended.
    """

    execution_id: ExecutionId
    tasks: dict[Token, bool]
    timers: list[TimerKey]
    children: list[ExecutionId]
    limits: dict[Token, str]
    is_stuck: bool


def in_flight_of(execution: Execution) -> InFlight:
    tasks = execution.in_flight_tokens()
    waiting = [found for found in _begun(execution) if found[1].wait is not None]
    is_waiting = any(run.wait is not Wait.SLOT for _, run in waiting)
    return InFlight(
        execution_id=execution.id,
        tasks=tasks,
        timers=[*_node_timers(execution, waiting), *_execution_timers(execution)],
        children=[
            ExecutionId(run.detail) for _, run in waiting if run.wait is Wait.CHILD and run.detail
        ],
        limits={token: run.key for token, run in waiting if run.wait is Wait.LIMIT},
        is_stuck=not tasks and not is_waiting and is_idle(execution),
    )


def _begun(execution: Execution) -> Iterator[tuple[Token, NodeRun]]:
    """Nodes and items that have begun and are not settled, a map by its items."""
    for index, run in enumerate(execution.nodes):
        if index not in execution.maps and not run.is_final:
            yield execution.token(index, NO_ITEM, run), run
    for index, found in execution.maps.items():
        for item, run in found.active.items():
            yield execution.token(index, item, run), run


def _node_timers(execution: Execution, waiting: list[tuple[Token, NodeRun]]) -> Iterator[TimerKey]:
    for token, run in waiting:
        if run.wait in TIMER_OF_WAIT and run.due is not None:
            yield TimerKey(execution.id, token.node_id, token.item, TIMER_OF_WAIT[run.wait])


def _execution_timers(execution: Execution) -> Iterator[TimerKey]:
    workflow = execution.graph.workflow
    if workflow.timeout_seconds is not None and execution.outcome is None:
        yield execution_timer(execution, TimerKind.TIMEOUT)
    if workflow.sla_seconds is not None and not execution.is_sla_missed:
        yield execution_timer(execution, TimerKind.SLA)
