"""Checks that concurrency keys, slots of executions and workers, and rates stay within their
limits.
"""

from collections import Counter

from runnel.core.events import Wait
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import TaskToken
from runnel.core.states import IN_FLIGHT_STATES
from simulation.commit_log import (
    ROUNDING_S,
    CommitStep,
    GroundTruth,
    HandlerInvocation,
    InvariantCheck,
)
from simulation.plan import WINDOW


class LimitCheck(InvariantCheck):
    name = "limits"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._token_times: dict[str, list[float]] = {}

    def on_rate_token(self, tag: str, at: float, *, rate_per_second: float, burst: int) -> None:
        """Checks that all workers together get at most `burst` tokens in one interval."""
        token_times = self._token_times.setdefault(tag, [])
        token_times.append(at)
        if (
            len(token_times) > burst
            and at - token_times[-1 - burst] < 1 / rate_per_second - ROUNDING_S
        ):
            raise self.make_violation(
                f"more than {burst} tokens of '{tag}' in 1/{rate_per_second:g} s"
            )

    def on_commit(self, step: CommitStep) -> None:
        for aggregate_id, limit in self.truth.limits.items():
            for holders_max in limit.holders.values():
                if len(limit.holders) > holders_max:
                    raise self.make_violation(
                        f"{aggregate_id} has {len(limit.holders)} holders, limit {holders_max}"
                    )
        for id_ in {id_ for id_, _ in step.events}:
            if id_ in self.truth.executions:
                self._check_slots(self.truth.executions[id_])
        if not self.truth.cuts_commits:
            self._check_keys()

    def on_handler_started(
        self, worker: str, token: TaskToken, invocation: HandlerInvocation
    ) -> None:
        running = self.truth.running_handlers[worker]
        if len(running) > self.truth.concurrency:
            raise self.make_violation(f"{worker} runs {len(running)} tasks at once: {running}")
        self._check_rate(invocation.rate_limit_tag)
        # After a rollback, a task may run again before its first run is stopped.
        if running.count(token) > 1 and not self.truth.was_rolled_back:
            raise self.make_violation(f"{worker} runs {token} twice at once")

    def _check_rate(self, tag: str | None) -> None:
        """Checks that code with a rate limit starts only after its rate token is due."""
        if tag is None:
            return
        rates = self.truth.rates
        rates.started[tag] += 1
        due = rates.count_due(tag, self.truth.server.clock.monotonic() + ROUNDING_S)
        if rates.started[tag] > due:
            raise self.make_violation(
                f"code for '{tag}' starts {rates.started[tag]} times with {due} tokens"
            )

    def _check_slots(self, execution: Execution) -> None:
        """Checks the number of used slots.

        Counts the states of nodes and items, not the engine's counter.
        """
        if execution.outcome is not None:
            return
        slots = min(execution.graph.workflow.max_concurrency or WINDOW, WINDOW)
        used = sum(
            run.state in IN_FLIGHT_STATES or run.wait in (Wait.CHILD, Wait.LIMIT)
            for node, run in _list_runs(execution)
            if run.attempt and not (node in execution.maps and run is execution.nodes[node])
        )
        if used > slots:
            raise self.make_violation(f"{execution.id} uses {used} of {slots} slots")

    def _check_keys(self) -> None:
        """Checks the number of holders of each key.

        Counts tasks of executions, not the state of the key.
        """
        in_flight: Counter[str] = Counter()
        limits: dict[str, int] = {}
        for execution in self.truth.executions.values():
            for node, run in _list_runs(execution):
                if run.key and run.state in IN_FLIGHT_STATES:
                    in_flight[run.key] += 1
                    limits[run.key] = execution.graph.nodes[node].node.concurrency_limit
        for key, count in in_flight.items():
            if count > limits[key]:
                raise self.make_violation(
                    f"{count} tasks with the key {key} are in flight, its limit is {limits[key]}"
                )


def _list_runs(execution: Execution) -> list[tuple[int, NodeRun]]:
    items = [
        (index, run) for index, map_run in execution.maps.items() for run in map_run.active.values()
    ]
    return [*enumerate(execution.nodes), *items]
