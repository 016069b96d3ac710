"""Helpers for tests of workers that call external services."""

from typing import Any

from runnel.core.commands import TaskFailed
from runnel.core.retry import RetryPolicy
from runnel.engine.clock import RealClock
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import AddressPermissions
from tests.unit.engine.worker.worker_harness import WorkerHarness

HANDLER = "call_external_service"


def make_worker(*allowed: str, clock: RealClock | None = None) -> WorkerHarness:
    """Returns a worker that may also call the given private addresses; its calls use `clock`."""
    stage = WorkerHarness(RealClock())
    handler_environment = HandlerEnvironment(
        addresses=AddressPermissions(allowed), clock=clock or stage.clock
    )
    stage.handlers = create_builtin_registry(handler_environment)
    return stage


async def call_service(stage: WorkerHarness, **config: Any) -> Any:
    return await stage.output(stage.task(HANDLER, config))


async def fail_call(stage: WorkerHarness, **config: Any) -> TaskFailed:
    return await stage.error(stage.task(HANDLER, config))


def is_retried(failed: TaskFailed) -> bool:
    return RetryPolicy().is_retryable(failed.error)
