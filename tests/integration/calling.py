"""Workers that call services: what they may reach, what they get, and how they fail."""

from typing import Any

from runnel.core.commands import TaskFailed
from runnel.core.workflow import RetryPolicy
from runnel.engine.clock import RealClock
from runnel.handlers import create_builtin_registry
from runnel.handlers.environment import HandlerEnvironment
from runnel.handlers.permissions import AddressPermissions
from tests.unit.engine.worker.stage import Stage

HANDLER = "call_external_service"


def staged(*allowed: str, clock: RealClock | None = None) -> Stage:
    """A worker that may reach these addresses besides public ones; its calls wait by `clock`."""
    stage = Stage(RealClock())
    means = HandlerEnvironment(addresses=AddressPermissions(allowed), clock=clock or stage.clock)
    stage.handlers = create_builtin_registry(means)
    return stage


async def called(stage: Stage, **config: Any) -> Any:
    return await stage.output(stage.task(HANDLER, config))


async def failure(stage: Stage, **config: Any) -> TaskFailed:
    return await stage.error(stage.task(HANDLER, config))


def is_retried(failed: TaskFailed) -> bool:
    return RetryPolicy().is_retryable(failed.error)
