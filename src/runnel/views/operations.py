"""Views of workers, queues, concurrency keys and partitions, and of a server itself."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.views import Timestamp

WorkerStatus: TypeAlias = Literal["alive", "draining", "silent", "dead"]
"""The state of a worker; `silent` means not dead yet, with overdue heartbeats."""


class RunningTask(msgspec.Struct, frozen=True, kw_only=True):
    """A running task."""

    execution_id: ExecutionId
    node_id: str
    item: int | None
    attempt: int
    workflow: str
    handler: str
    started_at: Timestamp


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker; `tasks` are its longest-running tasks as of the last heartbeat.

    A field that the worker has not reported yet is null.
    """

    worker: str
    status: WorkerStatus
    holds: Annotated[int, Meta(description="Tasks that the worker has claimed and not reported")]
    silent_s: Annotated[float, Meta(description="Seconds since the last heartbeat")]
    host: str | None
    pid: int | None
    queues: Annotated[
        Sequence[str] | None, Meta(description="Null for a worker that takes tasks of all queues")
    ]
    handlers: Sequence[str]
    concurrency: int | None
    beat_s: float | None
    started_at: Timestamp | None
    version: str | None
    claimed_at: Annotated[
        Timestamp | None, Meta(description="The time of the last claim of a task")
    ]
    tasks: Sequence[RunningTask]
    abandoned_threads: Annotated[
        int, Meta(description="Functions that continue in a thread after their task has ended")
    ] = 0


class DrainingWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that claims no more tasks after its next heartbeat, finishes its tasks, and ends."""

    worker: str


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: its waiting tasks, and the workers that take them."""

    queue: str
    waiting: int
    oldest_s: Annotated[
        float, Meta(description="Seconds that the oldest task of the queue has waited")
    ]
    workers: Annotated[int, Meta(description="Living workers that take tasks of the queue")]
    problem: Annotated[
        str,
        Meta(
            description="Why the tasks of the queue wait, and what to do; empty without a problem"
        ),
    ]


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that holds a concurrency key, or waits for it."""

    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    limit: Annotated[int, Meta(description="The number of attempts that may hold the key at once")]


class ConcurrencyKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A concurrency key, with the first 100 attempts that hold it, and the first 100 that wait."""

    key: str
    holding: int
    waiting: int
    holders: Sequence[KeyHolder]
    waiters: Sequence[KeyHolder]


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition: its owner, and how much of its inbox and journal is not processed yet."""

    partition: int
    owner: Annotated[str | None, Meta(description="The orchestrator that owns the partition")]
    epoch: int | None
    is_silent: Annotated[bool, Meta(description="The owner has not renewed its lease in time")]
    unread_s: Annotated[float, Meta(description="The age of the oldest unread message in seconds")]
    unarchived: Annotated[int, Meta(description="Commits that are not archived yet")]
    problem: str


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A server.

    The tasks of a server run in its own process (`embedded`), or in workers with the same Redis.
    """

    version: str
    engine: Literal["embedded", "redis"]

    @property
    def has_workers(self) -> bool:
        return self.engine != "embedded"


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    """The process is alive and responds to requests."""

    status: Literal["live"] = "live"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """The readiness of a process.

    `parts` has the problem of each part, such as the store or the workers, or null for a part
    without a problem.
    """

    status: Annotated[
        Literal["ready", "degraded", "not ready"],
        Meta(description="degraded: requests are stored, but no process handles them now"),
    ]
    parts: dict[str, str | None]

    @property
    def is_ready(self) -> bool:
        return not any(self.parts.values())
