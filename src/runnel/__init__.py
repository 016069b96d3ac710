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
    from runnel.core.retry import RetryPolicy
    from runnel.errors import InvalidWorkflowError, RunnelError, Skip
    from runnel.runtime.executor import WorkflowExecutor
    from runnel.runtime.rate_limiter import TokenBucketRateLimiter
    from runnel.runtime.results import StepResult, WorkflowResult

__version__ = "0.1.0"

__all__ = [
    "Context",
    "HandlerRegistry",
    "InvalidWorkflowError",
    "RetryPolicy",
    "RunnelError",
    "Skip",
    "StepContext",
    "StepResult",
    "TokenBucketRateLimiter",
    "WorkflowDAG",
    "WorkflowExecutor",
    "WorkflowResult",
    "__version__",
    "errors",
    "load_file",
]

_HOMES = {
    "Context": "runnel.authoring.context",
    "HandlerRegistry": "runnel.authoring.registry",
    "InvalidWorkflowError": "runnel.errors",
    "RetryPolicy": "runnel.core.retry",
    "RunnelError": "runnel.errors",
    "Skip": "runnel.errors",
    "StepContext": "runnel.authoring.step_context",
    "StepResult": "runnel.runtime.results",
    "TokenBucketRateLimiter": "runnel.runtime.rate_limiter",
    "WorkflowDAG": "runnel.authoring.builder",
    "WorkflowExecutor": "runnel.runtime.executor",
    "WorkflowResult": "runnel.runtime.results",
    "load_file": "runnel.authoring.load",
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
