"""A task, or a whole execution, ended otherwise than by a result."""

from collections.abc import Sequence

from runnel.errors.root import RunnelError


class HandlerNotFoundError(RunnelError):
    """No handler of that name is registered in this worker."""

    code = "no_handler"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            f"no handler registered under '{name}'; this worker knows: {', '.join(known)}"
        )
        self.name = name


class TaskTimeoutError(RunnelError):
    """A task took longer than its node's timeout_seconds."""

    retryable = True
    code = "timeout"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the task took longer than its timeout of {timeout_s:g} s")
        self.timeout_s = timeout_s


class SoftTimeoutError(RunnelError):
    """Raised inside the user's code when soft_timeout_seconds have passed."""

    retryable = True
    code = "soft_timeout"

    def __init__(self, timeout_s: float) -> None:
        super().__init__(f"the task took longer than its soft timeout of {timeout_s:g} s")
        self.timeout_s = timeout_s


class Skip(RunnelError):  # noqa: N818  # an answer of the user's code, not a mistake
    """`raise Skip("nothing to do")` in a handler: its node ends SKIPPED, and is not tried again.

    Nodes below it run or are skipped as `run_when` says. An item of a `for_each` that skips
    keeps its place in the joined list, as null.
    """

    code = "skipped"


class ConditionError(RunnelError):
    """A step's condition raised, or gave neither true nor false: the step fails at once."""

    code = "bad_condition"


class UnknownExecutionError(RunnelError):
    """A task of an execution that another process began: its functions are not here."""

    code = "unknown_execution"

    def __init__(self, execution_id: str) -> None:
        super().__init__(f"the functions of execution {execution_id} belong to another process")
        self.execution_id = execution_id


class EngineEndedError(RunnelError):
    """The engine stopped under an execution that was not final yet."""

    code = "engine_ended"

    def __init__(self, execution_id: str) -> None:
        super().__init__(f"the engine ended before execution {execution_id} had")
        self.execution_id = execution_id


class WorkflowFailedError(RunnelError):
    """An execution that somebody waited for ended FAILED or CANCELLED."""

    code = "workflow_failed"

    def __init__(self, execution_id: str, workflow: str, *, status: str, error: str | None) -> None:
        why = f": {error}" if error else ""
        super().__init__(
            f"execution {execution_id} of workflow '{workflow}' ended {status}{why}; "
            f"'runnel show {execution_id}' has the rest"
        )
        self.execution_id = execution_id
        self.workflow = workflow
        self.status = status
        self.error = error


class TaskCancelledError(RunnelError):
    """Raised in synchronous user code that checks its context after it has been cancelled."""

    code = "cancelled"


class ProcessDiedError(RunnelError):
    """The child process that ran a task in `process` mode ended before it answered."""

    retryable = True
    code = "process_died"

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"the process that ran the task ended with exit code {exit_code}")
        self.exit_code = exit_code
