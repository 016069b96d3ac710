"""What the exit code of `runnel` says."""

from runnel.core.states import ExecutionState

OK = 0
FAILED = 1
BAD_INPUT = 2
INTERRUPTED = 130
TERMINATED = 143
# And the number of the signal.
SIGNALLED = 128
PIPE_CLOSED = 141

OF_STATE = {
    ExecutionState.PENDING: OK,
    ExecutionState.RUNNING: OK,
    ExecutionState.COMPLETED: OK,
    ExecutionState.FAILED: FAILED,
    ExecutionState.CANCELLED: FAILED,
}
