"""What is said of a command that could not be decided."""

import traceback

import msgspec

from runnel.core.commands import ChildSettled, Command, CreateExecution
from runnel.core.decision import NOTHING, Decision
from runnel.core.effects import DeadLetter, Tell
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, Nonce, Token
from runnel.core.retry import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, ErrorInfo
from runnel.core.states import ExecutionState
from runnel.errors import InputError


def tell_parent_of(command: Command, error: ErrorInfo) -> Decision:
    """A child that could not be made has failed, or its parent would wait for ever."""
    if not isinstance(command, CreateExecution) or command.parent is None:
        return NOTHING
    settled = ChildSettled(
        token=command.parent,
        child_id=command.execution_id,
        state=ExecutionState.FAILED,
        error=error,
    )
    return Decision(effects=[Tell(settled)])


def describe_error(error: Exception) -> ErrorInfo:
    """As an execution keeps it: what a user can act on in its own words, the rest as a bug."""
    if isinstance(error, InputError):
        return ErrorInfo(type=type(error).__name__, message=_plain(error), retryable=False)
    trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:]
    message = f"deciding raised {type(error).__name__}: {_plain(error)}; this is a bug of Runnel"
    return ErrorInfo(
        type="InternalError", message=message, retryable=False, traceback=_storable(trace)
    )


def _plain(error: Exception) -> str:
    return _storable(str(error)[:MESSAGE_CHARS_MAX])


def _storable(text: str) -> str:
    """Half a surrogate pair can't be stored; it may be the very thing that went wrong."""
    return text.encode("utf-8", "backslashreplace").decode()


def letter_of(execution_id: str, handler: str, error: ErrorInfo, now: float) -> DeadLetter:
    return DeadLetter(
        token=Token(ExecutionId(execution_id), NodeId(""), NO_ITEM, 0, Nonce("")),
        queue="inbox",
        handler=handler,
        config=msgspec.Raw(b"null"),
        error=error,
        reason="the command could not be decided",
        rejected_at=now,
    )
