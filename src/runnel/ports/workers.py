"""Workers, orchestrators and queues, as an observer sees them in the store.

An observer does not trust timestamps of other processes. A process is alive while its counter
changes, measured on the observer's own clock.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from runnel.core.ids import TaskToken

# The failure detector judges after 7/12 of the timeout (`engine.failure_detector`). With fewer
# heartbeats per timeout, a single late one would make the worker count as dead.
BEATS_PER_TIMEOUT_MIN = 3.5


class OrchestratorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An orchestrator as the others see it: alive while `counter` changes, like a lease."""

    owner: str
    counter: int


class WorkerState(StrEnum):
    ALIVE = "alive"
    DRAINING = "draining"
    DEAD = "dead"


class RunningTaskInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task whose code is running, as its worker reports it."""

    execution_id: str
    node_id: str
    item: int
    attempt: int
    workflow: str
    handler: str
    started_at: float


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker's description of itself. `queues` None means all.

    `beat_s` is the interval of its heartbeats; 0 if unknown, as with workers of earlier versions.
    `claimed_at` is the time of its last claim that returned a task. `tasks` are the tasks that have
    been running longest.
    """

    host: str = ""
    pid: int = 0
    queues: tuple[str, ...] | None = None
    handlers: tuple[str, ...] = ()
    concurrency: int = 0
    started_at: float = 0.0
    version: str = ""
    is_draining: bool = False
    beat_s: float = 0.0
    claimed_at: float = 0.0
    tasks: tuple[RunningTaskInfo, ...] = ()

    def serves(self, queue: str) -> bool:
        """Returns whether the worker claims tasks of this queue."""
        return not self.is_draining and (self.queues is None or queue in self.queues)


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The store's reply to a heartbeat: tasks to stop, and whether the worker has to drain."""

    stop: Sequence[TaskToken] = ()
    drains: bool = False


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as an observer sees it: alive while `counter` changes, like a lease.

    `about` is None until its first heartbeat. `silent_s` is the time since the last one, on the
    store's clock.
    """

    worker: str
    counter: int
    holds: int
    about: WorkerInfo | None = None
    silent_s: float = 0.0
    is_dead: bool = False

    def grace_s(self, timeout_s: float) -> float:
        """Returns how long the worker must be silent before an observer with this timeout judges
        it.

        The settings of observer and worker may differ. 0 if the worker's heartbeats fit the
        timeout.
        """
        beat_s = 0.0 if self.about is None else self.about.beat_s
        least_s = BEATS_PER_TIMEOUT_MIN * beat_s
        return least_s if least_s > timeout_s else 0.0

    @property
    def is_crash(self) -> bool:
        """Whether its tasks may have killed the worker, if it is dead. False while it drains."""
        return self.about is None or not self.about.is_draining

    @property
    def state(self) -> WorkerState:
        if self.is_dead:
            return WorkerState.DEAD
        is_draining = self.about is not None and self.about.is_draining
        return WorkerState.DRAINING if is_draining else WorkerState.ALIVE


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with `depth` waiting tasks; the oldest has waited `waits_s` on the store's clock.

    `last` is the name of the last task, which changes with every task that arrives.
    """

    queue: str
    depth: int
    waits_s: float = 0.0
    last: str = ""
