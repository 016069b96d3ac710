"""Runnel: durable, event-driven DAG workflows.

A module is imported when one of its public names is first used, so that `import runnel` itself is
fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel import errors
    from runnel.app.decorated import workflow
    from runnel.app.engine import Engine, lifespan
    from runnel.app.executor import WorkflowExecutor
    from runnel.app.live_execution import StepResult, WorkflowResult
    from runnel.app.rate_limiter import TokenBucketRateLimiter
    from runnel.app.run import run, run_many, submit
    from runnel.authoring.builder import StepCache, WorkflowDAG
    from runnel.authoring.context import Context, StepContext
    from runnel.authoring.decorators.task import (
        Task,
        default,
        handler,
        item,
        secret,
        sleep,
        task,
        text,
        wait_for_signal,
    )
    from runnel.authoring.documents import load_file
    from runnel.authoring.registry import HandlerRegistry
    from runnel.client.batch import BatchResult
    from runnel.client.dead_letters import LettersOf
    from runnel.client.http_client import HttpClient as Client
    from runnel.client.reruns import RerunSpec as Rerun
    from runnel.client.sync_client import SyncClient
    from runnel.core.retry import RetryPolicy
    from runnel.core.workflow import Cache, RateLimit
    from runnel.errors import (
        InvalidWorkflowError,
        RunnelError,
        Skip,
        TraceError,
        WorkflowFailedError,
    )
    from runnel.ports.archive import ExecutionFilter
    from runnel.views.trigger import Schedule, Webhook, WebhookKind


__version__ = "0.1.0"

__all__ = [
    "BatchResult",
    "Cache",
    "Client",
    "Context",
    "Engine",
    "ExecutionFilter",
    "HandlerRegistry",
    "InvalidWorkflowError",
    "LettersOf",
    "RateLimit",
    "Rerun",
    "RetryPolicy",
    "RunnelError",
    "Schedule",
    "Skip",
    "StepCache",
    "StepContext",
    "StepResult",
    "SyncClient",
    "Task",
    "TokenBucketRateLimiter",
    "TraceError",
    "Webhook",
    "WebhookKind",
    "WorkflowDAG",
    "WorkflowExecutor",
    "WorkflowFailedError",
    "WorkflowResult",
    "__version__",
    "default",
    "errors",
    "handler",
    "item",
    "lifespan",
    "load_file",
    "run",
    "run_many",
    "secret",
    "sleep",
    "submit",
    "task",
    "text",
    "wait_for_signal",
    "workflow",
]

# The public names of each module.
_MODULES = {
    "runnel.app.decorated": "workflow",
    "runnel.app.engine": "Engine lifespan",
    "runnel.app.executor": "WorkflowExecutor",
    "runnel.app.live_execution": "StepResult WorkflowResult",
    "runnel.app.rate_limiter": "TokenBucketRateLimiter",
    "runnel.app.run": "run run_many submit",
    "runnel.authoring.builder": "StepCache WorkflowDAG",
    "runnel.authoring.context": "Context StepContext",
    "runnel.authoring.decorators.task": (
        "Task default handler item secret sleep task text wait_for_signal"
    ),
    "runnel.authoring.documents": "load_file",
    "runnel.authoring.registry": "HandlerRegistry",
    "runnel.client.batch": "BatchResult",
    "runnel.client.dead_letters": "LettersOf",
    "runnel.client.http_client": "Client",
    "runnel.client.reruns": "Rerun",
    "runnel.client.sync_client": "SyncClient",
    "runnel.core.retry": "RetryPolicy",
    "runnel.core.workflow": "Cache RateLimit",
    "runnel.errors": "InvalidWorkflowError RunnelError Skip TraceError WorkflowFailedError",
    "runnel.ports.archive": "ExecutionFilter",
    "runnel.views.trigger": "Schedule Webhook WebhookKind",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

# Public names that differ from the name in their module.
_CLASSES = {"Client": "HttpClient", "Rerun": "RerunSpec"}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("runnel.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'runnel' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), _CLASSES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
