"""`@workflow`: a traced workflow that can also be run from here.

What it takes to run one is imported when one is run: a worker, or a child process of one, imports
modules of tasks and workflows only for their tasks.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, overload

from runnel.authoring.decorators.workflow import TracedWorkflow, WorkflowOptions
from runnel.errors import InputError

if TYPE_CHECKING:
    from runnel.app.run import RunOptions


P = ParamSpec("P")
R = TypeVar("R")


class DecoratedWorkflow(TracedWorkflow[P, R]):
    """`run` from plain code, `await runnel.run(workflow, ...)` from async code."""

    _run_options: "RunOptions | None" = None

    def run_options(
        self,
        *,
        key: str | None = None,
        data_dir: str | Path | None = None,
        labels: Mapping[str, str] | None = None,
        concurrency: int | None = None,
    ) -> Self:
        """The same workflow, to be run so.

        A `key` names one execution: run again with the same key, it is not begun a second time.
        If it has ended, its result is returned, if its process was killed, it goes on.
        """
        from runnel.app.run import RunOptions

        if key is not None and not key:
            raise InputError(f"{self.label}.run_options: key: expected a text, got an empty one")
        options = RunOptions(
            key=key,
            data_dir=None if data_dir is None else Path(data_dir),
            labels=labels or {},
            concurrency=concurrency,
        )
        return self._copy_with(_run_options=options)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
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
            f"{self.label}.{verb}: an event loop is running here: write 'await "
            f"runnel.{verb}({self.label}, ...)'"
        )


class WorkflowDecorator:
    """`workflow(...)` with options, before it has its function."""

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
    """`@workflow` or `@workflow(on_failure="continue")` above a function that calls tasks."""
    return WorkflowDecorator(options) if function is None else DecoratedWorkflow(function, options)
