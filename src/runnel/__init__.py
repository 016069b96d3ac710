"""Runnel: durable, event-driven DAG workflows.

Each public name is imported when it is first used: `import runnel` itself takes no time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from runnel import errors
    from runnel.authoring.builder import WorkflowDAG
    from runnel.authoring.context import Context
    from runnel.authoring.load import load_file
    from runnel.authoring.registry import HandlerRegistry
    from runnel.authoring.step_context import StepContext
    from runnel.authoring.tracing.tasks import Task, task
    from runnel.authoring.tracing.values import (
        default,
        handler,
        item,
        secret,
        sleep,
        text,
        wait_for_signal,
    )
    from runnel.core.retry import RetryPolicy
    from runnel.core.workflow import Cache, RateLimit
    from runnel.errors import (
        InvalidWorkflowError,
        RunnelError,
        Skip,
        TraceError,
        WorkflowFailedError,
    )
    from runnel.remote.blocking import SyncClient
    from runnel.remote.client import Client
    from runnel.runtime.decorated import workflow
    from runnel.runtime.executor import WorkflowExecutor
    from runnel.runtime.rate_limiter import TokenBucketRateLimiter
    from runnel.runtime.results import StepResult, WorkflowResult
    from runnel.runtime.running import run, submit

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "Client",
    "Context",
    "HandlerRegistry",
    "InvalidWorkflowError",
    "RateLimit",
    "RetryPolicy",
    "RunnelError",
    "Skip",
    "StepContext",
    "StepResult",
    "SyncClient",
    "Task",
    "TokenBucketRateLimiter",
    "TraceError",
    "WorkflowDAG",
    "WorkflowExecutor",
    "WorkflowFailedError",
    "WorkflowResult",
    "__version__",
    "default",
    "errors",
    "handler",
    "item",
    "load_file",
    "run",
    "secret",
    "sleep",
    "submit",
    "task",
    "text",
    "wait_for_signal",
    "workflow",
]

_HOMES = {
    "Cache": "runnel.core.workflow",
    "Client": "runnel.remote.client",
    "Context": "runnel.authoring.context",
    "HandlerRegistry": "runnel.authoring.registry",
    "InvalidWorkflowError": "runnel.errors",
    "RateLimit": "runnel.core.workflow",
    "RetryPolicy": "runnel.core.retry",
    "RunnelError": "runnel.errors",
    "Skip": "runnel.errors",
    "StepContext": "runnel.authoring.step_context",
    "StepResult": "runnel.runtime.results",
    "SyncClient": "runnel.remote.blocking",
    "Task": "runnel.authoring.tracing.tasks",
    "TokenBucketRateLimiter": "runnel.runtime.rate_limiter",
    "TraceError": "runnel.errors",
    "WorkflowDAG": "runnel.authoring.builder",
    "WorkflowExecutor": "runnel.runtime.executor",
    "WorkflowFailedError": "runnel.errors",
    "WorkflowResult": "runnel.runtime.results",
    "default": "runnel.authoring.tracing.values",
    "handler": "runnel.authoring.tracing.values",
    "item": "runnel.authoring.tracing.values",
    "load_file": "runnel.authoring.load",
    "run": "runnel.runtime.running",
    "secret": "runnel.authoring.tracing.values",
    "sleep": "runnel.authoring.tracing.values",
    "submit": "runnel.runtime.running",
    "task": "runnel.authoring.tracing.tasks",
    "text": "runnel.authoring.tracing.values",
    "wait_for_signal": "runnel.authoring.tracing.values",
    "workflow": "runnel.runtime.decorated",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("runnel.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'runnel' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
