"""Retry policies: a temporary error is retried after a delay, a data error is not.

$ runnel run examples/retries.py
[
  "attempt 3 succeeded",
  7
]
$ runnel run examples/retries.py --input number=seven
…
parse: failed: ValueError: invalid literal for int() with base 10: 'seven'
…
"""

from typing import Any

from runnel import Context, RetryPolicy, task, workflow

QUICK_RETRIES = RetryPolicy(max_retries=4, initial_delay=0.2, exponential_base=2, jitter=False)


class BusyError(Exception):
    """An error of a service that is busy; `retry_after_s` is the minimum delay of the retry."""

    retry_after_s = 0.5


@task(retries=QUICK_RETRIES)
def call_service(ctx: Context | None = None) -> str:
    match ctx.attempt if ctx else 0:
        case 1:
            raise ConnectionError("no answer")
        case 2:
            raise BusyError("retry in half a second")
        case attempt:
            return f"attempt {attempt} succeeded"


@task(retries=QUICK_RETRIES)
def parse(number: str) -> int:
    """A ValueError is not retried: wrong data stays wrong."""
    return int(number)


@workflow
def retries(number: str = "7") -> Any:
    return [call_service(), parse(number)]
