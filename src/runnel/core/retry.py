"""Retries: which errors are retried, how often, and the delay before the next attempt."""

import hashlib

import msgspec

from runnel.core.ids import TaskToken

# Errors that are not retried, because invalid data and programming errors stay the same on a retry.
NOT_RETRYABLE_ERRORS = frozenset(
    {"ValueError", "TypeError", "KeyError", "AttributeError", "JSONDecodeError", "DecodeError"}
)


# If a process dies, any of its tasks may have killed it. After so many deaths, a task is a suspect:
# a worker runs it alone in a child process.
SUSPECT_LOSSES = 2


# A suspect that no child process can run may never be alone when its process dies. After more than
# so many deaths together with other tasks, the task fails.
LOSSES_TOGETHER_MAX = 10


# Some code can't run in a child process. The suspects of one death are therefore also issued again
# at different times within this span, so that they run apart. Every further death doubles the span.
CRASH_SPREAD_S = 2.0


CRASH_SPREAD_S_MAX = 60.0


TRACEBACK_CHARS_MAX = 8_000


MESSAGE_CHARS_MAX = 2_000


# The longest delay before a retry that a service can request.
RETRY_AFTER_S_MAX = 3_600.0


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The stored form of an error.

    `types` holds the names of its class and base classes, most derived first.

    `retryable` is set if the error itself states whether a retry is useful. If `retryable` is None,
    the class names and the policy decide. `retry_after_s` is the shortest delay before a retry, as
    an overloaded service requests it.
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
    """Allows up to `max_retries` further attempts.

    Each delay is `exponential_base` times the previous delay, up to `max_delay`.
    """

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
        """Returns the seconds to wait after failure number `failures`, counted from 1.

        Returns None if the retries are used up.

        `delay_s_min` is the delay that the error requests. That delay may exceed `max_delay`, up to
        one hour.
        """
        if failures > self.max_retries:
            return None
        delay = max(self._delay(failures), min(delay_s_min or 0.0, RETRY_AFTER_S_MAX))
        return delay + delay / 2 * _derive_fraction(token) if self.jitter else delay

    def is_retryable(self, error: ErrorInfo) -> bool:
        """Returns True if the error may be retried.

        `no_retry_on` and `retry_on` decide first, then the error's own `retryable`, then
        NOT_RETRYABLE_ERRORS.
        """
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
    """Returns the seconds to wait after `losses` processes have died while they held this task.

    The first death causes no delay, because the task is almost never its cause.
    """
    if losses < SUSPECT_LOSSES:
        return 0.0
    doublings = min(
        losses - SUSPECT_LOSSES, 10
    )  # 10 doublings reach the longest delay and can't overflow
    return min(CRASH_SPREAD_S_MAX, CRASH_SPREAD_S * 2.0**doublings) * _derive_fraction(token)


def _derive_fraction(token: TaskToken) -> float:
    """Returns a number in [0, 1) that depends only on the ids in the token.

    A repeated decision gets the same number.
    """
    text = f"{token.execution_id}/{token.node_id}/{token.item}/{token.attempt}"
    digest = hashlib.blake2b(text.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
