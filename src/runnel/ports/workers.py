"""Who takes part, and what waits for whom, as an observer sees it in the store.

Nobody is alive because it says when it last was: a counter changes, on the observer's own clock.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from runnel.core.ids import TaskToken

# Judged after 7/12 of the timeout (`engine.liveness`): with fewer, one late beat makes it dead.
BEATS_PER_TIMEOUT_MIN = 3.5


class OrchestratorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An orchestrator as the others see it: alive while `counter` changes, as a lease is."""

    owner: str
    counter: int


class WorkerState(StrEnum):
    ALIVE = "alive"
    DRAINING = "draining"
    DEAD = "dead"


class RunningTaskInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task whose code runs, as its worker says."""

    execution_id: str
    node_id: str
    item: int
    attempt: int
    workflow: str
    handler: str
    started_at: float


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself; `queues` None means all.

    `beat_s` is how often it beats; 0 when it does not say, as those of an earlier Runnel.
    `claimed_at` is when it last got a task, `tasks` are those that have run for the longest.
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
        """Whether it will claim what comes into this queue."""
        return not self.is_draining and (self.queues is None or queue in self.queues)


class HeartbeatReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told when it beats: tasks that it should stop, and whether it is to end."""

    stop: Sequence[TaskToken] = ()
    drains: bool = False


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as an observer sees it: alive while `counter` changes, as a lease is.

    `about` is None until it has beaten; `silent_s` is how long ago it did, on the store's clock.
    """

    worker: str
    counter: int
    holds: int
    about: WorkerInfo | None = None
    silent_s: float = 0.0
    is_dead: bool = False

    def grace_s(self, timeout_s: float) -> float:
        """How long it has to be silent at least before an observer with this timeout judges it.

        The observer's settings may not be the worker's: 0 when its beats fit the timeout.
        """
        beat_s = 0.0 if self.about is None else self.about.beat_s
        least_s = BEATS_PER_TIMEOUT_MIN * beat_s
        return least_s if least_s > timeout_s else 0.0

    @property
    def is_crash(self) -> bool:
        """Whether, should it be dead, its tasks may have killed it: not while it drains."""
        return self.about is None or not self.about.is_draining

    @property
    def state(self) -> WorkerState:
        if self.is_dead:
            return WorkerState.DEAD
        is_draining = self.about is not None and self.about.is_draining
        return WorkerState.DRAINING if is_draining else WorkerState.ALIVE


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`depth` tasks wait, the oldest since `waits_s` on the store's clock; `last` is the last one's
    name, which changes with every task that comes.
    """

    queue: str
    depth: int
    waits_s: float = 0.0
    last: str = ""
