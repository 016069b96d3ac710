"""`@workflow`: a traced workflow with the methods `run` and `submit`.

The engine is imported only when a workflow runs. Workers and their child processes import modules
with workflows too, but only to find tasks.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from runnel.authoring.decorators.workflow import TracedWorkflow, WorkflowOptions
from runnel.errors import InputError

if TYPE_CHECKING:
    from runnel.app.run_arguments import RunOptions


P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class DecoratedWorkflow(TracedWorkflow[P, R_co]):
    """A workflow for `run` in plain code and `await runnel.run(workflow, ...)` in async code."""

    _run_options: "RunOptions | None" = None

    def run_options(
        self,
        *,
        key: str | None = None,
        data_dir: str | Path | None = None,
        labels: Mapping[str, str] | None = None,
        concurrency: int | None = None,
        priority: int | None = None,
    ) -> Self:
        """Returns a copy of the workflow with other options for `run` and `submit`.

        A `key` names one execution. Another run with the same key does not start a new one: it
        returns the result of a finished execution, and resumes one whose process was killed.
        Without a `priority`, an execution has the priority of the workflow.
        """
        from runnel.app.run_arguments import RunOptions

        if key is not None and not key:
            raise InputError(f"{self.label}.run_options: key: expected a text that is not empty")
        options = RunOptions(
            key=key,
            data_dir=None if data_dir is None else Path(data_dir),
            labels=labels or {},
            concurrency=concurrency,
            priority=priority,
        )
        return self._copy_with(_run_options=options)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Runs an execution to its end and returns its result; see `runnel.run`."""
        from runnel.app.run import run

        self._check_no_loop("run")
        return asyncio.run(run(self, *args, **kwargs))

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> str:
        """Stores an execution and returns its id; see `runnel.submit`."""
        from runnel.app.run import submit

        self._check_no_loop("submit")
        return asyncio.run(submit(self, *args, **kwargs))

    def _check_no_loop(self, verb: str) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InputError(
            f"{self.label}.{verb}: an event loop is running in this thread: write 'await "
            f"runnel.{verb}({self.label}, ...)'"
        )


class WorkflowDecorator:
    """The result of `workflow(...)` with options: decorates a function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    def __call__(self, function: Callable[P, R]) -> DecoratedWorkflow[P, R]:
        return DecoratedWorkflow(function, self._options)


@overload
def workflow(function: Callable[P, R], /) -> DecoratedWorkflow[P, R]: ...
@overload
def workflow(**options: Unpack[WorkflowOptions]) -> WorkflowDecorator: ...
def workflow(
    function: Callable[..., Any] | None = None, /, **options: Unpack[WorkflowOptions]
) -> Any:
    """Decorates a function that calls tasks: `@workflow` or `@workflow(on_failure="continue")`."""
    return WorkflowDecorator(options) if function is None else DecoratedWorkflow(function, options)
