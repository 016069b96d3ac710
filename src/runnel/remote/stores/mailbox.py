"""Commands that an onlooker leaves, as requests."""

from collections.abc import Mapping, Sequence

from runnel.core.commands import CancelExecution, Command
from runnel.errors import BrokenInvariantError, WrongStateError
from runnel.ports.store import NO_BLOBS
from runnel.remote.client import Client


class RemoteMailbox:
    """Takes what ends executions: anything else the server decides by itself when it is asked."""

    def __init__(self, server: Client) -> None:
        self._server = server

    async def send(
        self,
        commands: Sequence[Command],
        *,
        blobs: Mapping[str, bytes] = NO_BLOBS,
        of_stored: bool = False,
    ) -> None:
        for command in commands:
            if not isinstance(command, CancelExecution):
                raise BrokenInvariantError(f"a {type(command).__name__} is not sent over HTTP")
            await self._cancel(command)

    async def _cancel(self, command: CancelExecution) -> None:
        """One that has ended meanwhile is left alone, as its owner would."""
        try:
            await self._server.cancel(
                command.execution_id, reason=command.reason, is_forced=command.is_forced
            )
        except WrongStateError:
            return
