"""Who is dead: whoever has shown no new sign of life for a while, on the observer's own clock."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from runnel.errors import StoreError
from runnel.ports.clock import Clock
from runnel.ports.telemetry import STORE_FAILED, Telemetry

LOOKS_PER_TIMEOUT = 6
# The last sign is seen at most one look after it was given, and found to be old at most one look
# after it is: 3.5 + 2 of 6 looks leave half a look for the looking itself.
LOOKS_UNTIL_DEAD = 3.5

Who = TypeVar("Who", bound=Hashable)
Sign = TypeVar("Sign")


class Liveness(Generic[Who, Sign]):
    """A sign is anything that the living change: no clock but the observer's takes part.

    So neither clocks that differ nor an observer that slept for a while make anybody dead who
    has moved since the observer last looked. Whoever gives a sign every `look_s` and is looked
    at every `look_s` is found dead at most `timeout_s` after its last sign, and not before it
    has missed three.
    """

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.look_s = timeout_s / LOOKS_PER_TIMEOUT
        self._clock = clock
        self._still_s = LOOKS_UNTIL_DEAD * self.look_s
        self._seen: dict[Who, tuple[Sign, float]] = {}

    def is_dead(self, who: Who, sign: Sign, *, grace_s: float = 0.0) -> bool:
        """True once the same sign has been seen for long enough, `grace_s` at least."""
        now = self._clock.monotonic()
        known = self._seen.get(who)
        if known is None or known[0] != sign:
            self._seen[who] = (sign, now)
            return False
        return now - known[1] >= max(self._still_s, grace_s)

    def forget_all_but(self, known: "set[Who]") -> None:
        for who in self._seen.keys() - known:
            del self._seen[who]


# What a loop does while the store can't be reached: say so, wait a little longer each time.

DELAY_S_FIRST = 0.1
DELAY_S_MAX = 5.0

T = TypeVar("T")


class Patience:
    def __init__(self, clock: Clock, telemetry: Telemetry, worker: str) -> None:
        self._clock = clock
        self._telemetry = telemetry
        self._worker = worker

    async def until_done(self, ask: Callable[[], Awaitable[T]], what: str) -> T:
        """Asks again after each StoreError that is retryable; every other error is raised.

        Only for calls that may be repeated. All of the worker's are: claims that got lost on the
        way are noticed by the store, and a start or a report counts once per token.
        """
        delay_s = DELAY_S_FIRST
        while True:
            try:
                return await ask()
            except StoreError as error:
                if not error.retryable:
                    raise
                self._telemetry.event(
                    STORE_FAILED, worker=self._worker, call=what, error=str(error)
                )
            await self._clock.sleep(delay_s)
            delay_s = min(2 * delay_s, DELAY_S_MAX)
