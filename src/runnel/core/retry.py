"""Retries: which errors are retried, how often, and the delay before the next attempt."""

import hashlib

import msgspec

from runnel.core.ids import TaskToken

# Bad data and programming errors do not disappear on a retry.
NOT_RETRYABLE_ERRORS = frozenset(
    {"ValueError", "TypeError", "KeyError", "AttributeError", "JSONDecodeError", "DecodeError"}
)


# All tasks of a dying worker are suspects: the one that killed it and its neighbours. From the
# second death on, each is issued again at a different time within this span. Every further death
# doubles it.
CRASH_SPREAD_S = 2.0


CRASH_SPREAD_S_MAX = 60.0


TRACEBACK_CHARS_MAX = 8_000


MESSAGE_CHARS_MAX = 2_000


# The longest delay that a service can request. After it, the task is retried anyway.
RETRY_AFTER_S_MAX = 3_600.0


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An error as it is stored. `types` are the class and its bases, most derived first.

    `retryable` is the error's own statement; None leaves it to the class names and the policy.
    `retry_after_s` is the shortest useful delay, as an overloaded service names it.
    """

    type: str
    message: str
    types: tuple[str, ...] = ()
    retryable: bool | None = None
    traceback: str | None = None
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Allows up to `max_retries` more attempts, with delays that grow by `exponential_base`."""

    max_retries: int = 3
    initial_delay: float = 1.0
    max_delay: float = 60.0
    exponential_base: float = 2.0
    jitter: bool = True
    retry_on: tuple[str, ...] = ()
    no_retry_on: tuple[str, ...] = ()

    def delay_after(
        self, failures: int, token: TaskToken, *, delay_s_min: float | None = None
    ) -> float | None:
        """Returns the seconds to wait after the `failures`-th failure (1-based); None means give
        up.

        `delay_s_min` is the delay that the error requests. It may exceed `max_delay`, up to an
        hour.
        """
        if failures > self.max_retries:
            return None
        delay = max(self._delay(failures), min(delay_s_min or 0.0, RETRY_AFTER_S_MAX))
        return delay + delay / 2 * _derive_fraction(token) if self.jitter else delay

    def is_retryable(self, error: ErrorInfo) -> bool:
        """Applies the node's own lists first, then the error's statement, then the class names."""
        names = set(error.types) | {error.type}
        if names & set(self.no_retry_on):
            return False
        if names & set(self.retry_on):
            return True
        if error.retryable is not None:
            return error.retryable
        return not names & NOT_RETRYABLE_ERRORS

    def _delay(self, failures: int) -> float:
        try:
            grown = self.initial_delay * self.exponential_base ** (failures - 1)
        except OverflowError:
            return self.max_delay
        return min(self.max_delay, grown)


def compute_crash_delay(losses: int, token: TaskToken) -> float:
    """Returns the seconds to wait after the `losses`-th worker (1-based) died with this task.

    The first death causes no delay: it almost never has anything to do with the task.
    """
    if losses <= 1:
        return 0.0
    doublings = min(losses - 2, 10)  # enough for the longest delay, without an overflow
    return min(CRASH_SPREAD_S_MAX, CRASH_SPREAD_S * 2.0**doublings) * _derive_fraction(token)


def _derive_fraction(token: TaskToken) -> float:
    """Returns a number in [0, 1) that depends on the ids only, so that every decision gets the
    same.
    """
    text = f"{token.execution_id}/{token.node_id}/{token.item}/{token.attempt}"
    digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
