"""Workers as people see them, and how one is told to end."""

from typing import cast

import msgspec

from runnel.core.checks.wording import printable
from runnel.core.ids import NO_ITEM
from runnel.core.json_types import Json
from runnel.errors import NotFoundError, WrongStateError
from runnel.ports.registry import RunningTask, WorkerAbout, WorkerRecord
from runnel.ports.store import TaskQueue
from runnel.settings import Settings
from runnel.views import moment


def state_of(record: WorkerRecord, settings: Settings) -> str:
    """`silent`: not dead yet, but its beats are overdue."""
    timeout_s = settings.heartbeat_timeout_s
    is_silent = not record.is_dead and record.silent_s > max(timeout_s, record.grace_s(timeout_s))
    return "silent" if is_silent else str(record.state)


async def list_workers(tasks: TaskQueue) -> list[WorkerRecord]:
    """The living first, by name, then those that were found dead lately."""
    found = await tasks.workers(with_dead=True)
    return sorted(found, key=lambda each: (each.is_dead, each.worker))


async def find_worker(tasks: TaskQueue, name: str) -> WorkerRecord:
    """Raises NotFoundError."""
    for record in await tasks.workers(with_dead=True):
        if record.worker == name:
            return record
    raise _no_worker(name)


async def drain_worker(tasks: TaskQueue, name: str) -> None:
    """It takes no further task, finishes what it runs, and its process ends.

    Raises NotFoundError, and WrongStateError for one that is dead.
    """
    record = await find_worker(tasks, name)
    if record.is_dead:
        raise WrongStateError(f"worker {name} is dead already, it can't be drained any more")
    if not await tasks.drain(name):
        raise _no_worker(name)


def worker_document(record: WorkerRecord, settings: Settings) -> dict[str, Json]:
    """What is not known of it is null: it has not beaten yet, or is of an earlier version."""
    about = record.about
    said = about or WorkerAbout()
    return {
        "worker": record.worker,
        "state": state_of(record, settings),
        "holds": record.holds,
        "silent_s": record.silent_s,
        "host": about and about.host,
        "pid": about and about.pid,
        "queues": None if said.queues is None else list(said.queues),
        "handlers": list(said.handlers),
        "concurrency": about and about.concurrency,
        "beat_s": said.beat_s or None,
        "started_at": moment(about.started_at) if about else None,
        "version": about and about.version,
        "claimed_at": moment(said.claimed_at) if said.claimed_at else None,
        "tasks": [_task_document(each) for each in said.tasks],
    }


def _task_document(task: RunningTask) -> dict[str, Json]:
    document = cast("dict[str, Json]", msgspec.to_builtins(task))
    document["item"] = None if task.item == NO_ITEM else task.item
    document["started_at"] = moment(task.started_at)
    return document


def _no_worker(name: str) -> NotFoundError:
    return NotFoundError(
        "worker", printable(name), hint="'runnel workers' shows those that are there"
    )
