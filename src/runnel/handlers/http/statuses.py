"""What the status of an answer means: a result, worth another try, or final."""

from collections.abc import Sequence
from email.utils import parsedate_to_datetime

import msgspec

from runnel.errors import RunnelError, ServiceBusyError, ServiceRefusedError
from runnel.handlers.shortening import short

OK: tuple[int | str, ...] = ("2xx",)
# Request Timeout, Too Early, Too Many Requests, and trouble of the server's own: all may pass.
RETRIED: tuple[int | str, ...] = (408, 425, 429, "5xx")
SAID_CHARS = 500


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Statuses as numbers or as classes, `5xx`; `ok` wins over `retried`."""

    ok: Sequence[int | str] = OK
    retried: Sequence[int | str] = RETRIED

    def is_ok(self, status: int) -> bool:
        return _has(self.ok, status)

    def is_retried(self, status: int) -> bool:
        return _has(self.retried, status) and not self.is_ok(status)


def status_error(
    verdicts: Verdicts, where: str, status: int, *, said: str, retry_after_s: float | None
) -> RunnelError:
    """`said` is the beginning of the body: services explain there what they did not like."""
    words = short(" ".join(said.split()), SAID_CHARS)
    sentence = f"{where} answered {status}" + (f": {words}" if words else "")
    if verdicts.is_retried(status):
        return ServiceBusyError(sentence, status=status, retry_after_s=retry_after_s)
    return ServiceRefusedError(sentence, status=status)


def retry_after(text: str | None, *, now: float) -> float | None:
    """The header Retry-After in seconds from now; None without one, or when it is no time."""
    if text is None:
        return None
    if text.isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _has(statuses: Sequence[int | str], status: int) -> bool:
    return status in statuses or f"{status // 100}xx" in statuses
