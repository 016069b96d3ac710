"""Limits are never exceeded: concurrency keys, the slots of an execution, rates."""

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
        """However many workers ask, no more than `burst` tokens fall into one interval."""
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
            for most in limit.holders.values():
                if len(limit.holders) > most:
                    raise self.make_violation(
                        f"{aggregate_id} has {len(limit.holders)} holders of {most}"
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
            raise self.make_violation(f"{worker} runs {len(running)} at once: {running}")
        self._check_rate(invocation.rate_limit_tag)
        # What the store forgot may be issued again before its first run is told to stop.
        if running.count(token) > 1 and not self.truth.was_rolled_back:
            raise self.make_violation(f"{worker} runs {token} twice at once")

    def _check_rate(self, tag: str | None) -> None:
        """Code with a tag takes a token, and waits until that is due."""
        if tag is None:
            return
        rates = self.truth.rates
        rates.started[tag] += 1
        due = rates.count_due(tag, self.truth.server.clock.monotonic() + ROUNDING_S)
        if rates.started[tag] > due:
            raise self.make_violation(
                f"code for '{tag}' begins {rates.started[tag]} times on {due} tokens"
            )

    def _check_slots(self, execution: Execution) -> None:
        """Counted from the states of nodes and items, not by the counter that is judged."""
        if execution.outcome is not None:
            return
        most = min(execution.graph.workflow.max_concurrency or WINDOW, WINDOW)
        used = sum(
            run.state in IN_FLIGHT_STATES or run.wait in (Wait.CHILD, Wait.LIMIT)
            for node, run in _list_runs(execution)
            if run.attempt and not (node in execution.maps and run is execution.nodes[node])
        )
        if used > most:
            raise self.make_violation(f"{execution.id} has {used} of {most} slots in use")

    def _check_keys(self) -> None:
        """By what executions believe, not by what the key's writer says."""
        out: Counter[str] = Counter()
        most: dict[str, int] = {}
        for execution in self.truth.executions.values():
            for node, run in _list_runs(execution):
                if run.key and run.state in IN_FLIGHT_STATES:
                    out[run.key] += 1
                    most[run.key] = execution.graph.nodes[node].node.concurrency_limit
        for key, count in out.items():
            if count > most[key]:
                raise self.make_violation(
                    f"{count} tasks are out under key {key}, at most {most[key]} may"
                )


def _list_runs(execution: Execution) -> list[tuple[int, NodeRun]]:
    items = [
        (index, run) for index, map_run in execution.maps.items() for run in map_run.active.values()
    ]
    return [*enumerate(execution.nodes), *items]
