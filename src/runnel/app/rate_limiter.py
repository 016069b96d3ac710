"""A token bucket: awaited with `limiter.acquire()`, or the limit of steps with a resource_tag."""

import math
import threading

from runnel.backends.local.tasks import reserve_token
from runnel.core.validation.checks import ABOVE_ZERO, make_integer_check
from runnel.engine.clock import RealClock
from runnel.errors import InputError
from runnel.ports.clock import Clock


class TokenBucketRateLimiter:
    """Grants at most `burst` tokens at once and `rate_per_second` in the long run, in order.

    Executors, event loops and threads may share one limiter; it limits them together.
    """

    def __init__(
        self, rate_per_second: float = 10.0, burst: int = 1, *, clock: Clock | None = None
    ) -> None:
        if not ABOVE_ZERO.fits(rate_per_second):
            raise InputError(f"expected rate_per_second to be above 0, got {rate_per_second}")
        if not make_integer_check(1).fits(burst):
            raise InputError(f"expected burst to be a whole number of at least 1, got {burst}")
        self.rate_per_second = float(rate_per_second)
        self.burst = burst
        self._clock = clock or RealClock()
        self._interval_s = 1.0 / rate_per_second
        # The state of the bucket: the time when it is full again if no more tokens are taken.
        self._full_at = self._clock.monotonic()
        self._lock = threading.Lock()

    @property
    def tokens(self) -> float:
        """The number of tokens that can be taken now without waiting, from 0 to `burst`."""
        with self._lock:
            until_full_s = max(0.0, self._full_at - self._clock.monotonic())
        return max(0.0, self.burst - until_full_s * self.rate_per_second)

    async def acquire(self) -> None:
        """Waits for a token. A cancelled waiter returns its reservation."""
        wait_s = self.take()
        if wait_s <= 0:
            return
        try:
            await self._clock.sleep(wait_s)
        except BaseException:
            self._give_back()
            raise

    def take(self, *, wait_s_max: float = math.inf) -> float:
        """Reserves the next token and returns the seconds until it may be used.

        If that is longer than `wait_s_max`, nothing is reserved.
        """
        with self._lock:
            now = self._clock.monotonic()
            wait_s, self._full_at = reserve_token(
                self._full_at,
                now=now,
                interval_s=self._interval_s,
                burst=self.burst,
                wait_s_max=wait_s_max,
            )
            return wait_s

    def _give_back(self) -> None:
        with self._lock:
            self._full_at -= self._interval_s
