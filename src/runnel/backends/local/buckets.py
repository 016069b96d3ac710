"""Token buckets, each kept as one number: the time at which it will be full again."""

from runnel.ports.clock import Clock

# A bucket that claims to be further away than this was written before the clock was set back.
LEAP_S = 3_600.0


def take(
    full_at: float, *, now: float, rate_per_second: float, burst: int, wait_s_max: float
) -> tuple[float, float]:
    """(seconds to wait, the bucket's new `full_at`): unchanged when that wait is too long."""
    interval_s = 1.0 / rate_per_second
    known = full_at if full_at - now < burst * interval_s + LEAP_S else now
    wait_s = max(0.0, known - (burst - 1) * interval_s - now)
    if wait_s > wait_s_max:
        return wait_s, known
    return wait_s, max(known, now) + interval_s


class LocalBuckets:
    """Buckets that end with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    async def take(
        self, tag: str, *, rate_per_second: float, burst: int, wait_s_max: float
    ) -> float:
        now = self._clock.monotonic()
        wait_s, self._full_at[tag] = take(
            self._full_at.get(tag, now),
            now=now,
            rate_per_second=rate_per_second,
            burst=burst,
            wait_s_max=wait_s_max,
        )
        return wait_s
