"""Running code and the three ways to interrupt it: softly, by cancelling, by force."""

import asyncio

from runnel.errors import SoftTimeoutError


class Code:
    """Code that only waits for something elsewhere (a blob, a thread): cancelling ends the wait.

    `runner` is the asyncio task of the slot; whoever runs there sees the CancelledError.
    """

    __slots__ = ("runner",)

    def __init__(self, runner: asyncio.Task[None]) -> None:
        self.runner = runner

    def soften(self, error: SoftTimeoutError) -> None:
        """Raises `error` inside the code if that is possible; a thread can't be reached."""

    def cancel(self) -> None:
        self.runner.cancel()

    def kill(self) -> None:
        """Ends the code whatever it did with its cancellation."""
        self.runner.cancel()
