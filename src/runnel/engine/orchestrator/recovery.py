"""Recovers a partition for its new owner: reads the inbox, then finds lost tasks and timers."""

from runnel.core.commands import Command, FailExecution, ResumeExecution, ResumeLimit, TaskLost
from runnel.core.ids import ExecutionId, TaskToken
from runnel.engine.orchestrator.partition_owner import PartitionOwner, describe_error
from runnel.errors import NewerFormatError, StoreError
from runnel.ports import telemetry as names
from runnel.ports.store import LossKind, Store
from runnel.ports.telemetry import Telemetry

EXECUTIONS_PER_BATCH = 100


async def recover_partition(owner: PartitionOwner, store: Store, telemetry: Telemetry) -> int:
    """Recovers every running execution of the partition; returns the number of executions.

    The owner reads all reports first, because a task with an unread report is not lost. Executions
    that start during the recovery need no recovery, because this owner issues their tasks itself.
    """
    running = await store.running(owner.lease.partition)
    # Under steady traffic some entries stay unread. `unknown_tasks` takes unread reports into
    # account.
    await owner.drain()
    seen = set(running)
    waiting = [*running, *sorted(owner.recreated.difference(seen))]
    while waiting:
        seen.update(waiting)
        commands: list[Command] = []
        await owner.prefetch(waiting[:EXECUTIONS_PER_BATCH])
        for execution_id in waiting[:EXECUTIONS_PER_BATCH]:
            commands += await _make_recovery_commands(owner, store, telemetry, execution_id)
        await owner.submit(commands)
        # During its recovery, a parent sends the creation of its child again. The child may exist
        # without being listed as running.
        unlisted = sorted(owner.recreated.difference(seen))
        waiting = waiting[EXECUTIONS_PER_BATCH:] + unlisted
    keys = await store.list_concurrency_keys(owner.lease.partition)
    await owner.submit([ResumeLimit(key=key) for key in keys])
    owner.recreated.clear()
    return len(seen)


async def _make_recovery_commands(
    owner: PartitionOwner, store: Store, telemetry: Telemetry, execution_id: ExecutionId
) -> list[Command]:
    """Returns the commands that recover one execution, or that fail it if it can't be loaded.

    An execution that can't be loaded must not block the recovery of the others.
    """
    try:
        in_flight = await owner.in_flight(execution_id)
    except StoreError:
        raise
    except NewerFormatError as error:
        telemetry.event(names.COMMAND_POISONED, aggregate=execution_id, error=str(error))
        return []
    except Exception as error:  # noqa: BLE001 - any problem concerns this execution only
        return [FailExecution(execution_id=execution_id, error=describe_error(error))]
    lost = await store.unknown_tasks(owner.lease.partition, list(in_flight)) if in_flight else {}
    for token in lost:
        telemetry.event(names.TASK_LOST, token=token, reason="unknown to the store")
    commands: list[Command] = [
        make_task_lost(token, "its process ended", kind, was_running=in_flight[token])
        for token, kind in lost.items()
    ]
    return [*commands, ResumeExecution(execution_id=execution_id)]


def make_task_lost(
    token: TaskToken, reason: str, kind: LossKind | None, *, was_running: bool
) -> TaskLost:
    """Returns the command for a task that no process holds.

    If the store can't tell how the task was lost, `was_running` tells whether its code began.
    """
    return TaskLost(
        token=token,
        reason=reason,
        was_started=was_running if kind is None else kind is not LossKind.NOT_STARTED,
        was_alone=kind is LossKind.ALONE,
    )
