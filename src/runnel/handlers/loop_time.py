"""Waiting on the event loop, for handlers that were given no clock."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Waits(Protocol):
    """The part of a Clock that handlers need."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]: ...


class LoopTime:
    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)
