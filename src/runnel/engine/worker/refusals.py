"""Hands tasks back that this worker can't run, because another worker may be able to.

Examples are a function that the worker can't import, and one that its operator has not allowed.
Workers with different `--app` may share a queue. A worker that has refused several tasks in a row
claims less often, so that the tasks reach other workers first.
"""

from collections import OrderedDict
from typing import TypeAlias

from runnel.authoring.functions import NotImportableError
from runnel.core.commands import TaskDeferred
from runnel.core.decide.decision_context import NAME_CHARS_MAX
from runnel.engine.worker.task_run import TaskRun
from runnel.errors import NotAllowedError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import TASK_HANDED_BACK, Telemetry

# A task that was handed back is queued again after its age, within these limits.
HAND_BACK_S_MIN = 1.0
HAND_BACK_S_MAX = 10.0
# For this time after a refusal, the worker claims without waiting, with a pause before each claim.
# A task that returns is then pushed to a worker that waits. The pause grows with each refusal since
# the last task that this worker ran, so a single refused task does not delay other tasks.
CLAIM_LESS_S = 15.0
CLAIM_PAUSE_S = 0.1
CLAIM_PAUSE_S_MAX = 2.0
# The worker forgets the oldest of more tasks than this, and then hands them back from the start.
REMEMBERED_TASKS_MAX = 10_000
# The most refused functions and programs that a heartbeat lists.
REFUSED_NAMES_MAX = 200

Refusal: TypeAlias = NotAllowedError | NotImportableError


class TaskRefusals:
    """Decides whether a task that this worker can't run goes back to its queue, or fails.

    A task fails once this worker has handed it back for `hand_back_s` and every other live worker
    of the queue has refused the same function. The heartbeats of a worker list what it has refused.
    A busy worker that may be able to run the task keeps it from failing. With `hand_back_s` 0, no
    other worker exists, and a task fails at once.
    """

    def __init__(
        self,
        tasks: TaskQueue,
        clock: Clock,
        telemetry: Telemetry,
        *,
        worker: str,
        hand_back_s: float,
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._telemetry = telemetry
        self._worker = worker
        self._hand_back_s = hand_back_s
        self._claims_less_until = 0.0
        # The times of the first and the last refusal of each task.
        self._seen: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._names: OrderedDict[str, None] = OrderedDict()
        self.refusals_in_a_row = 0
        """The number of refusals since the last task that this worker ran."""

    @property
    def claim_pause_s(self) -> float:
        """The pause before a claim; 0 if the worker has not refused a task recently."""
        if not self.refusals_in_a_row or self._clock.monotonic() >= self._claims_less_until:
            return 0.0
        return min(CLAIM_PAUSE_S_MAX, CLAIM_PAUSE_S * self.refusals_in_a_row)

    @property
    def names(self) -> tuple[str, ...]:
        """The functions and programs that this worker has refused, each with its handler."""
        return tuple(self._names)

    def explain(self, reason: Refusal) -> Refusal:
        """Returns the error with advice for the operator of a worker."""
        if not self._hand_back_s or not isinstance(reason, NotImportableError):
            return reason
        return NotImportableError(
            f"{reason}. Start a worker in the folder of the module, and name the module with --app",
            name=reason.name,
        )

    async def hand_back(self, run: TaskRun, problem: str, *, name: str) -> TaskDeferred | None:
        """Returns the report that hands the task back, or None if the task has to fail.

        `name` is the function or program that this worker can't run. The report counts neither as
        an attempt nor as a loss.
        """
        if not self._hand_back_s:
            return None
        name = f"{run.task.handler} {name}"[:NAME_CHARS_MAX]
        self._note_refusal(name)
        key = _make_key(run)
        is_first = key not in self._seen
        age_s = self._update_age(key)
        if age_s >= self._hand_back_s and not await self._may_run_elsewhere(run, name):
            self._seen.pop(key, None)
            return None
        if is_first:
            self._telemetry.event(
                TASK_HANDED_BACK,
                worker=self._worker,
                execution_id=run.token.execution_id,
                node_id=run.token.node_id,
                problem=problem,
            )
        wait_s = min(max(age_s, HAND_BACK_S_MIN), HAND_BACK_S_MAX)
        return TaskDeferred(
            token=run.token, until=self._clock.now() + wait_s, wait_s=wait_s, reason=problem
        )

    def _note_refusal(self, name: str) -> None:
        self._claims_less_until = self._clock.monotonic() + CLAIM_LESS_S
        self.refusals_in_a_row += 1
        self._names[name] = None
        self._names.move_to_end(name)
        if len(self._names) > REFUSED_NAMES_MAX:
            self._names.popitem(last=False)

    def _update_age(self, key: str) -> float:
        """Returns for how long this worker has handed the task back.

        The age restarts if the task did not return for longer than a task is deferred, plus
        `hand_back_s` in which this worker may have had no free slot. Another worker had it.
        """
        now = self._clock.monotonic()
        first, last = self._seen.pop(key, (now, now))
        if now - last > HAND_BACK_S_MAX + self._hand_back_s:
            first = now
        self._seen[key] = first, now
        if len(self._seen) > REMEMBERED_TASKS_MAX:
            self._seen.popitem(last=False)
        return now - first

    async def _may_run_elsewhere(self, run: TaskRun, name: str) -> bool:
        """Returns True if another live worker of the queue has not refused `name`."""
        try:
            workers = await self._tasks.workers()
        except StoreError:
            return True
        return any(
            record.worker != self._worker
            and record.about is not None
            and record.about.serves(run.task.queue)
            and name not in record.about.refuses
            for record in workers
        )


def _make_key(run: TaskRun) -> str:
    """Returns a key that changes when a worker has run the task and its attempt has failed or was
    lost.
    """
    return f"{run.token.idempotency_key}/{run.task.failures}/{run.task.losses}"
