"""Deliberate defects of rules: counts, signals, limits, retries and cancels."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from runnel.backends.local.task_board import TaskBoard, TaskEntry
from runnel.core import decide as decide_package
from runnel.core import evolve as evolve_module
from runnel.core.commands import (
    CancelExecution,
    Command,
    CreateExecution,
    SendSignal,
    TaskCompleted,
    TaskLost,
    TaskSkipped,
    TaskStopped,
)
from runnel.core.decide import attempts as task
from runnel.core.decide import lifecycle
from runnel.core.decide import maps as mapping
from runnel.core.decide import outcomes as closing
from runnel.core.decide import readiness as flow
from runnel.core.decide import waits as waiting
from runnel.core.decide.decision_context import DecisionContext
from runnel.core.effects import TimerKind
from runnel.core.events import NodeFailed, TaskWasLost
from runnel.core.execution import NodeRun
from runnel.core.ids import TaskToken
from runnel.core.retry import ErrorInfo, RetryPolicy
from runnel.core.values import NULL
from runnel.core.workflow import RateLimit
from runnel.engine.worker.runner import RateLimiter, RunnerPool
from runnel.engine.worker.slots import Slots
from runnel.engine.worker.task_run import StopReason, TaskRun
from runnel.ports.store import Commit, Lease
from runnel.ports.workers import WorkerRecord
from simulation.backend import _RemoteStore
from tests.simulation.bugs import Bug, Patch


def newest_signal_first(patch: Patch) -> None:
    real = waiting.consume_signal

    def newest(turn: DecisionContext, index: int) -> None:
        turn.execution.signals = dict(reversed(turn.execution.signals.items()))
        real(turn, index)

    patch.setattr(waiting, "consume_signal", newest)


def repeated_signal_is_taken_again(patch: Patch) -> None:
    _run_before(
        patch,
        SendSignal,
        lambda turn, command: turn.execution.signal_ids.pop(command.signal_id, None),
    )


def signal_timeout_is_not_set(patch: Patch) -> None:
    _skip_timers(patch, TimerKind.SIGNAL)


def late_signal_always_fails(patch: Patch) -> None:
    """Ignores `on_timeout`."""

    def fail(turn: DecisionContext, index: int, run: NodeRun) -> None:
        if run.wait == "sleep":
            end_wait(turn, index, run)
        else:
            closing.fail_node(turn, index, ErrorInfo(type="SignalTimeout", message=""))

    end_wait = waiting.end_wait
    patch.setattr(task, "end_wait", fail)


def task_runs_twice(patch: Patch) -> None:
    """Queues each claimed task twice in its worker."""
    put = Slots.put

    def twice(self: Slots, runs: Iterable[TaskRun]) -> None:
        runs = list(runs)
        put(self, [*runs, *runs])

    patch.setattr(Slots, "put", twice)


def child_outlives_its_parent(patch: Patch) -> None:
    send = DecisionContext.send

    def quiet(self: DecisionContext, command: Command) -> None:
        if not isinstance(command, CancelExecution):
            send(self, command)

    patch.setattr(DecisionContext, "send", quiet)


def force_spares_children(patch: Patch) -> None:
    send = DecisionContext.send

    def gentle(self: DecisionContext, command: Command) -> None:
        if isinstance(command, CancelExecution):
            command = replace(command, is_forced=False)
        send(self, command)

    patch.setattr(DecisionContext, "send", gentle)


def clean_up_does_not_wait(patch: Patch) -> None:
    """Drops cancelled tasks without waiting for the end of their code."""
    patch.setattr(closing, "_find_stop_due", lambda _turn: None)


def stop_is_reported_too_early(patch: Patch) -> None:
    """The worker reports the end of stopped code before the code has ended."""
    stop = RunnerPool.stop

    def report_first(self: RunnerPool, run: TaskRun, reason: StopReason, **options: Any) -> None:
        if reason is StopReason.DROPPED:
            self._reporter.put(TaskStopped(token=run.token))
        stop(self, run, reason, **options)

    patch.setattr(RunnerPool, "stop", report_first)


def force_is_ignored(patch: Patch) -> None:
    _change_commands(patch, CancelExecution, lambda command: replace(command, is_forced=False))


def every_loss_is_a_crash(patch: Patch) -> None:
    """Also counts losses of live workers and of workers that shut down."""

    def lose(self: TaskBoard, entry: TaskEntry, reason: str, **_flags: bool) -> None:
        self.finish(entry, TaskLost(token=entry.task.token, reason=reason, was_started=True))

    patch.setattr(TaskBoard, "_lose", lose)


def every_task_of_a_dead_worker_was_alone(patch: Patch) -> None:
    real = TaskBoard._lose

    def lose(
        self: TaskBoard, entry: TaskEntry, reason: str, *, is_crash: bool, was_alone: bool = False
    ) -> None:
        real(self, entry, reason, is_crash=is_crash, was_alone=is_crash or was_alone)

    patch.setattr(TaskBoard, "_lose", lose)


def losses_are_not_counted(patch: Patch) -> None:
    patch.setitem(evolve_module._APPLIERS, TaskWasLost, lambda _execution, _event, _at: None)


def every_failure_is_a_dead_letter(patch: Patch) -> None:
    real = closing.fail_attempt

    def keep(
        turn: DecisionContext,
        index: int,
        run: NodeRun,
        failed: NodeFailed,
        *,
        diagnosis: str | None,
    ) -> None:
        real(turn, index, run, failed, diagnosis=diagnosis or "failed")

    patch.setattr(task, "fail_attempt", keep)


def no_dead_letters(patch: Patch) -> None:
    patch.setattr(closing, "_put_dead_letter", lambda *_args: None)


def skip_by_code_is_a_success(patch: Patch) -> None:
    on_completed = decide_package._HANDLERS[TaskCompleted]

    def complete(turn: DecisionContext, command: TaskSkipped) -> None:
        on_completed(turn, TaskCompleted(token=command.token, output=NULL, worker=command.worker))

    patch.setitem(decide_package._HANDLERS, TaskSkipped, complete)


def held_execution_starts_at_once(patch: Patch) -> None:
    _change_commands(patch, CreateExecution, lambda command: replace(command, is_held=False))


def execution_has_no_time_limit(patch: Patch) -> None:
    patch.setattr(task, "_time_out_execution", lambda _turn: None)


def sla_is_forgotten(patch: Patch) -> None:
    real = lifecycle._set_execution_timers

    def without_sla(turn: DecisionContext) -> None:
        real(turn)
        turn.effects = [
            effect
            for effect in turn.effects
            if getattr(getattr(effect, "key", None), "kind", None) is not TimerKind.SLA
        ]

    patch.setattr(lifecycle, "_set_execution_timers", without_sla)


def retry_on_is_ignored(patch: Patch) -> None:
    real = RetryPolicy.is_retryable
    patch.setattr(
        RetryPolicy,
        "is_retryable",
        lambda self, error: real(replace(self, retry_on=()), error),
    )


def retries_follow_at_once(patch: Patch) -> None:
    real = RetryPolicy.delay_after

    def soon(self: RetryPolicy, failures: int, token: TaskToken) -> float | None:
        return None if real(self, failures, token) is None else 0.0

    patch.setattr(RetryPolicy, "delay_after", soon)


def gives_up_one_retry_early(patch: Patch) -> None:
    real = RetryPolicy.delay_after
    patch.setattr(
        RetryPolicy, "delay_after", lambda self, failures, token: real(self, failures + 1, token)
    )


def window_is_not_limited(patch: Patch) -> None:
    """Issues all tasks at once if an execution sets no limit."""

    def has_slot(turn: DecisionContext) -> bool:
        slots = turn.execution.graph.workflow.max_concurrency
        return slots is None or turn.execution.in_flight < slots

    for module in (flow, mapping):
        patch.setattr(module, "has_slot", has_slot)


def rate_limit_is_ignored(patch: Patch) -> None:
    patch.setattr(RateLimiter, "find_limit", lambda _self, _task: None)


def rate_token_is_not_waited_for(patch: Patch) -> None:
    real = RateLimiter.take_token

    async def impatient(
        self: RateLimiter, task_run: Any, limit: RateLimit, *, may_park: bool
    ) -> float:
        await real(self, task_run, limit, may_park=may_park)
        return 0.0

    patch.setattr(RateLimiter, "take_token", impatient)


def rate_tokens_are_taken_twice(patch: Patch) -> None:
    """Takes two tokens per task, which halves the rate."""
    real = RateLimiter.take_token

    async def greedy(
        self: RateLimiter, task_run: Any, limit: RateLimit, *, may_park: bool
    ) -> float:
        await real(self, task_run, limit, may_park=may_park)
        return await real(self, task_run, limit, may_park=may_park)

    patch.setattr(RateLimiter, "take_token", greedy)


def heartbeat_after_the_verdict_is_ignored(patch: Patch) -> None:
    """Removes a worker that was judged dead, although it has sent a heartbeat since."""

    def lose_dead(self: TaskBoard, judged: WorkerRecord) -> int:
        return self.remove_worker(judged.worker, "its worker is dead")

    patch.setattr(TaskBoard, "remove_dead_worker", lose_dead)


def long_tasks_are_lost(patch: Patch) -> None:
    """Ignores the tasks that a heartbeat lists, so that long tasks run twice."""
    real = TaskBoard._lose_missing
    patch.setattr(
        TaskBoard, "_lose_missing", lambda self, worker, _listed: real(self, worker, set())
    )


def some_commits_are_sent_again(patch: Patch) -> None:
    """Sends every fifth commit twice. The second one is refused, and the owner reloads."""
    commit = _RemoteStore.commit

    async def twice(self: _RemoteStore, lease: Lease, sent: Commit) -> None:
        await commit(self, lease, sent)
        if sent.sequence % 5 == 0:
            await commit(self, lease, sent)

    patch.setattr(_RemoteStore, "commit", twice)


def _run_before(patch: Patch, kind: type, do: Callable[[DecisionContext, Any], None]) -> None:
    handle = decide_package._HANDLERS[kind]

    def both(turn: DecisionContext, command: Any) -> None:
        do(turn, command)
        handle(turn, command)

    patch.setitem(decide_package._HANDLERS, kind, both)


def _change_commands(patch: Patch, kind: type, change: Callable[[Any], Any]) -> None:
    handle = decide_package._HANDLERS[kind]
    patch.setitem(
        decide_package._HANDLERS, kind, lambda turn, command: handle(turn, change(command))
    )


def _skip_timers(patch: Patch, kind: TimerKind) -> None:
    set_timer = DecisionContext.set_timer

    def skip(self: DecisionContext, index: int, item: int, timer: TimerKind, **fields: Any) -> None:
        if timer is not kind:
            set_timer(self, index, item, timer, **fields)

    patch.setattr(DecisionContext, "set_timer", skip)


ALL: tuple[Bug, ...] = (
    newest_signal_first,
    repeated_signal_is_taken_again,
    signal_timeout_is_not_set,
    late_signal_always_fails,
    task_runs_twice,
    child_outlives_its_parent,
    force_spares_children,
    force_is_ignored,
    clean_up_does_not_wait,
    stop_is_reported_too_early,
    every_loss_is_a_crash,
    every_task_of_a_dead_worker_was_alone,
    losses_are_not_counted,
    every_failure_is_a_dead_letter,
    no_dead_letters,
    skip_by_code_is_a_success,
    held_execution_starts_at_once,
    execution_has_no_time_limit,
    sla_is_forgotten,
    retry_on_is_ignored,
    retries_follow_at_once,
    gives_up_one_retry_early,
    window_is_not_limited,
    rate_limit_is_ignored,
    rate_token_is_not_waited_for,
    rate_tokens_are_taken_twice,
    heartbeat_after_the_verdict_is_ignored,
    long_tasks_are_lost,
    some_commits_are_sent_again,
)
