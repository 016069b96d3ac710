"""Workers, queues, limits and partitions as answers have them."""

from typing import Literal

from pydantic import BaseModel, Field

from runnel.api.models.moments import Moment


class TaskAnswer(BaseModel):
    """A task that runs."""

    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    workflow: str
    handler: str
    started_at: Moment


class WorkerAnswer(BaseModel):
    """`tasks` are those that have run for the longest, as of the last heartbeat."""

    worker: str
    state: Literal["alive", "draining", "silent", "dead"]
    holds: int = Field(description="Tasks that it has claimed and not reported")
    silent_s: float = Field(description="Since its last heartbeat")
    host: str | None
    pid: int | None
    queues: list[str] | None = Field(description="Null when it takes tasks of all queues")
    handlers: list[str]
    concurrency: int | None
    beat_s: float | None
    started_at: Moment | None
    version: str | None
    claimed_at: Moment | None = Field(description="When it last got a task")
    tasks: list[TaskAnswer]


class WorkerList(BaseModel):
    items: list[WorkerAnswer]


class Draining(BaseModel):
    """It is told with its next heartbeat, finishes what it runs, and ends."""

    worker: str


class QueueAnswer(BaseModel):
    queue: str
    waiting: int
    oldest_s: float = Field(description="How long the oldest task has waited")
    workers: int = Field(description="Living workers that take its tasks")
    problem: str = Field(description="What a person should look at; empty when all is well")


class QueueList(BaseModel):
    items: list[QueueAnswer]


class HolderAnswer(BaseModel):
    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    limit: int = Field(description="How many may hold the key at once")


class LimitAnswer(BaseModel):
    """A concurrency key; the first hundred of those that hold it, and of those in line."""

    key: str
    holding: int
    waiting: int
    holders: list[HolderAnswer]
    waiters: list[HolderAnswer]


class LimitPage(BaseModel):
    items: list[LimitAnswer]
    next: str | None = Field(description="Give this as `after` to get the next page")


class PartitionAnswer(BaseModel):
    partition: int
    owner: str | None = Field(description="The orchestrator that decides for it")
    epoch: int | None
    is_silent: bool = Field(description="Its owner has given no sign of life lately")
    unread_s: float = Field(description="How long the oldest message has not been read")
    unarchived: int = Field(description="Commits that the archive does not have yet")
    problem: str


class PartitionList(BaseModel):
    items: list[PartitionAnswer]
