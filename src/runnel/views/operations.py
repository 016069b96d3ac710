"""Workers, queues, concurrency keys and partitions, and what a server is."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from runnel.core.ids import ExecutionId
from runnel.views import Timestamp

WorkerStatus: TypeAlias = Literal["alive", "draining", "silent", "dead"]
"""`silent`: not dead yet, but its heartbeats are overdue."""


class RunningTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task that runs."""

    execution_id: ExecutionId
    node_id: str
    item: int | None
    attempt: int
    workflow: str
    handler: str
    started_at: Timestamp


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """`tasks` are those that have run for the longest, as of the last heartbeat.

    What the worker has not said of itself yet is null.
    """

    worker: str
    state: WorkerStatus
    holds: Annotated[int, Meta(description="Tasks that it has claimed and not reported")]
    silent_s: Annotated[float, Meta(description="Since its last heartbeat")]
    host: str | None
    pid: int | None
    queues: Annotated[
        Sequence[str] | None, Meta(description="Null when it takes tasks of all queues")
    ]
    handlers: Sequence[str]
    concurrency: int | None
    beat_s: float | None
    started_at: Timestamp | None
    version: str | None
    claimed_at: Annotated[Timestamp | None, Meta(description="When it last got a task")]
    tasks: Sequence[RunningTask]


class DrainingWorker(msgspec.Struct, frozen=True, kw_only=True):
    """It is told with its next heartbeat, finishes what it runs, and ends."""

    worker: str


class QueueView(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that wait, and the workers that take them."""

    queue: str
    waiting: int
    oldest_s: Annotated[float, Meta(description="How long the oldest task has waited")]
    workers: Annotated[int, Meta(description="Living workers that take its tasks")]
    problem: Annotated[
        str, Meta(description="What a person should look at; empty when all is well")
    ]


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that holds a concurrency key, or waits for it."""

    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    limit: Annotated[int, Meta(description="How many may hold the key at once")]


class ConcurrencyKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """A concurrency key; the first hundred of those that hold it, and of those in line."""

    key: str
    holding: int
    waiting: int
    holders: Sequence[KeyHolder]
    waiters: Sequence[KeyHolder]


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """Who owns a partition, and what lies there that has not been dealt with."""

    partition: int
    owner: Annotated[str | None, Meta(description="The orchestrator that decides for it")]
    epoch: int | None
    is_silent: Annotated[bool, Meta(description="Its owner has given no sign of life lately")]
    unread_s: Annotated[float, Meta(description="How long the oldest message has not been read")]
    unarchived: Annotated[int, Meta(description="Commits that the archive does not have yet")]
    problem: str


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` says where tasks run: in the server's own process, or by workers around a Redis."""

    version: str
    engine: Literal["embedded", "redis"]

    @property
    def has_workers(self) -> bool:
        return self.engine != "embedded"


class Liveness(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers."""

    status: Literal["live"] = "live"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """`parts` says of each why it is not ready; null when it is."""

    status: Annotated[
        Literal["ready", "degraded", "not ready"],
        Meta(description="degraded: requests are taken, and nobody acts on them for now"),
    ]
    parts: dict[str, str | None]

    @property
    def is_ready(self) -> bool:
        return not any(self.parts.values())
