"""Every error that Runnel raises on purpose: built from data, the class writes the sentence.

A message says what was found, what was expected and what to do next. `retryable` tells whether
the same call may succeed later; `code` is the stable name that APIs and logs use.
"""

from runnel.errors.inner import (
    BrokenInvariantError,
    IllegalMoveError,
    NewerFormatError,
    UnreadableFormatError,
)
from runnel.errors.input import (
    ConflictError,
    InputError,
    InvalidInputError,
    InvalidWorkflowError,
    KeyReusedError,
    MissingExtraError,
    NotFoundError,
    PayloadError,
    TraceError,
    WrongStateError,
)
from runnel.errors.root import (
    RunnelError,
)
from runnel.errors.services import (
    NotAllowedError,
    ProgramFailedError,
    ProgramNotFoundError,
    ProgramRefusedError,
    ServiceBusyError,
    ServiceError,
    ServiceRefusedError,
)
from runnel.errors.stores import (
    ArchiveBehindError,
    ArchiveGapError,
    ArchiveRefusedError,
    CommitTooLargeError,
    FencedError,
    LeaseHeldError,
    NoServerBinaryError,
    NoServerError,
    PartitionUnavailableError,
    ServerFailedError,
    StoreError,
)
from runnel.errors.tasks import (
    ConditionError,
    EngineEndedError,
    HandlerNotFoundError,
    ProcessDiedError,
    Skip,
    SoftTimeoutError,
    TaskCancelledError,
    TaskTimeoutError,
    UnknownExecutionError,
    WorkflowFailedError,
)

__all__ = [
    "ArchiveBehindError",
    "ArchiveGapError",
    "ArchiveRefusedError",
    "BrokenInvariantError",
    "CommitTooLargeError",
    "ConditionError",
    "ConflictError",
    "EngineEndedError",
    "FencedError",
    "HandlerNotFoundError",
    "IllegalMoveError",
    "InputError",
    "InvalidInputError",
    "InvalidWorkflowError",
    "KeyReusedError",
    "LeaseHeldError",
    "MissingExtraError",
    "NewerFormatError",
    "NoServerBinaryError",
    "NoServerError",
    "NotAllowedError",
    "NotFoundError",
    "PartitionUnavailableError",
    "PayloadError",
    "ProcessDiedError",
    "ProgramFailedError",
    "ProgramNotFoundError",
    "ProgramRefusedError",
    "RunnelError",
    "ServerFailedError",
    "ServiceBusyError",
    "ServiceError",
    "ServiceRefusedError",
    "Skip",
    "SoftTimeoutError",
    "StoreError",
    "TaskCancelledError",
    "TaskTimeoutError",
    "TraceError",
    "UnknownExecutionError",
    "UnreadableFormatError",
    "WorkflowFailedError",
    "WrongStateError",
]
