"""Records of workers, orchestrators and queues that other processes read from the store.

An observer is a process that detects dead processes. An observer does not trust timestamps of other
processes. The observer counts a process as alive while that process's counter changes, measured on
the observer's own clock.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from runnel.core.ids import TaskToken

# A worker may count as dead after 11/16 of the timeout (`engine.services.dead_workers`). With fewer
# heartbeats per timeout, a single lost heartbeat would make a worker count as dead.
BEATS_PER_TIMEOUT_MIN = 3.0


class OrchestratorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The registration of an orchestrator.

    Other orchestrators count it as alive while `counter` changes.
    """

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
    """A worker's description of itself, sent with its heartbeats. `queues` is None for all queues.

    `beat_s` is the interval of the worker's heartbeats. `beat_s` is 0 for workers of earlier
    versions, which do not report it. `claimed_at` is the time of its last claim that returned a
    task. `tasks` holds the tasks that have been running longest. `refuses` holds the functions and
    programs that the worker could not run, each with its handler. `abandoned_threads` is the number
    of functions that continue in a thread although their task has ended.
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
    refuses: tuple[str, ...] = ()
    abandoned_threads: int = 0

    def serves(self, queue: str) -> bool:
        """Returns True if the worker claims tasks of this queue."""
        return not self.is_draining and (self.queues is None or queue in self.queues)


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """The store's reply to a heartbeat: tasks to stop, and whether the worker has to drain."""

    stop: Sequence[TaskToken] = ()
    drains: bool = False


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The registration of a worker. An observer counts the worker as alive while `counter` changes.

    `about` is None until the worker's first heartbeat. `silent_s` is the time since the last
    heartbeat, on the store's clock.
    """

    worker: str
    counter: int
    holds: int
    about: WorkerInfo | None = None
    silent_s: float = 0.0
    is_dead: bool = False

    def grace_s(self, timeout_s: float) -> float:
        """Returns how long this worker must be silent before an observer may count it as dead.

        `timeout_s` is the observer's own setting. Returns 0 if the worker's heartbeats are frequent
        enough for that timeout. The settings of observer and worker may differ.
        """
        beat_s = 0.0 if self.about is None else self.about.beat_s
        least_s = BEATS_PER_TIMEOUT_MIN * beat_s
        return least_s if least_s > timeout_s else 0.0

    @property
    def is_crash(self) -> bool:
        """Whether a task may have killed this worker, if the worker is dead.

        False if it was draining.
        """
        return self.about is None or not self.about.is_draining

    @property
    def state(self) -> WorkerState:
        if self.is_dead:
            return WorkerState.DEAD
        is_draining = self.about is not None and self.about.is_draining
        return WorkerState.DRAINING if is_draining else WorkerState.ALIVE


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A task queue with `depth` waiting tasks.

    The oldest has waited `waits_s`, on the store's clock.
    """

    queue: str
    depth: int
    waits_s: float = 0.0
