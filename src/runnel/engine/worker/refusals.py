"""Hands tasks back that this worker can't run, because another worker may be able to.

Examples are a function that the worker can't import, and one that its operator has not allowed.
Workers with different `--app` may share a queue. After a refusal, the worker claims less often, so
that the tasks reach other workers first.
"""

from collections import OrderedDict

from runnel.authoring.functions import NotImportableError
from runnel.core.commands import TaskDeferred
from runnel.engine.worker.task_run import TaskRun
from runnel.errors import RunnelError, StoreError
from runnel.ports.clock import Clock
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import TASK_HANDED_BACK, Telemetry

# A task that was handed back is queued again after its age, within these limits.
HAND_BACK_S_MIN = 1.0
HAND_BACK_S_MAX = 10.0
# For this time after a refusal, the worker claims without waiting, with a pause before each claim.
# A task that returns is then pushed to a worker that waits.
CLAIM_LESS_S = 15.0
CLAIM_PAUSE_S = 2.0
# If other workers serve the queue, they have this many times longer to take the task.
PATIENCE_WITH_OTHERS = 10
# The worker forgets the oldest of more tasks than this, and then hands them back from the start.
REMEMBERED_TASKS_MAX = 10_000


class TaskRefusals:
    """Decides whether a task that this worker can't run goes back to its queue, or fails.

    A task fails once this worker has handed it back for `hand_back_s`. With `hand_back_s` 0, no
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
        self._first_seen: OrderedDict[str, float] = OrderedDict()

    @property
    def claims_less(self) -> bool:
        """Whether the worker has refused a task recently."""
        return bool(self._first_seen) and self._clock.monotonic() < self._claims_less_until

    def explain(self, reason: RunnelError) -> RunnelError:
        """Returns the error with advice for the operator of a worker."""
        if not self._hand_back_s or not isinstance(reason, NotImportableError):
            return reason
        return NotImportableError(
            f"{reason}. Start a worker in the folder of the module, and name the module with --app"
        )

    async def hand_back(self, run: TaskRun, problem: str) -> TaskDeferred | None:
        """Returns the report that hands the task back, or None if the task has to fail.

        The report counts neither as an attempt nor as a loss.
        """
        if not self._hand_back_s:
            return None
        now, key = self._clock.monotonic(), run.token.idempotency_key
        is_first = key not in self._first_seen
        age_s = now - self._first_seen.setdefault(key, now)
        self._claims_less_until = now + CLAIM_LESS_S
        if age_s >= self._hand_back_s and await self._has_waited_enough(run, age_s):
            del self._first_seen[key]
            return None
        if len(self._first_seen) > REMEMBERED_TASKS_MAX:
            self._first_seen.popitem(last=False)
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

    async def _has_waited_enough(self, run: TaskRun, age_s: float) -> bool:
        if age_s >= PATIENCE_WITH_OTHERS * self._hand_back_s:
            return True
        try:
            workers = await self._tasks.workers()
        except StoreError:
            return False
        return not any(
            record.worker != self._worker
            and record.about is not None
            and record.about.serves(run.task.queue)
            for record in workers
        )
