"""What is run at every crash point: a workflow, its handlers, and what its caller does."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from runnel.authoring.registry import HandlerRegistry
from runnel.core.json_types import Json
from runnel.core.workflow import Workflow
from runnel.ports.store import CommitLimits
from runnel.testing.crash_points.caller import Caller
from runnel.testing.crash_points.diary import Diary

_LIMITS = CommitLimits()


async def _only_waits(caller: Caller) -> None:
    """Most workflows need nothing but to be submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`acts` is called once the execution is submitted, and again in the process that resumes.

    Its end must not depend on timing: two nodes that race give two ends. Small `limits` cut what
    is decided at once into several commits, with a crash point between them.
    """

    name: str
    workflow: Workflow
    handlers: Callable[[Diary], HandlerRegistry]
    input: Json = None
    is_held: bool = False
    limits: CommitLimits = _LIMITS
    acts: Callable[[Caller], Awaitable[None]] = _only_waits
