"""What a workload is given: a client, and how to learn of the end of what it submits."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from runnel.client import Client
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.errors import RunnelError
from runnel.ports.clock import Clock


class WrongEndError(RunnelError):
    """What was measured did not do its work: how long that took is no figure."""

    code = "wrong_end"

    def __init__(self, execution_id: ExecutionId, state: ExecutionState) -> None:
        super().__init__(f"execution {execution_id} ended as {state}: nothing was measured")


class Ends(Protocol):
    async def ended(self, execution_id: ExecutionId) -> float:
        """When it was known to be completed, on the monotonic clock; waits for that.

        Raises WrongEndError if it ended in another way.
        """


class Site(Protocol):
    """A deployment that is ready, and that nobody else uses."""

    client: Client
    clock: Clock

    def ends(self, *, rest_s: float = 0.0) -> AbstractAsyncContextManager[Ends]:
        """Of what is submitted within the block; they may be told so much later."""

    def pids(self) -> Mapping[str, Sequence[int]]:
        """The processes of each part that is measured, this one among them if it is a part."""


def check_completed(execution_id: ExecutionId, state: ExecutionState) -> None:
    """Raises WrongEndError."""
    if state is not ExecutionState.COMPLETED:
        raise WrongEndError(execution_id, state)
