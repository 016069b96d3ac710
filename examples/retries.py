"""What is tried again, how often and how soon; and what is not, because it would only fail again.

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

SOON = RetryPolicy(max_retries=4, initial_delay=0.2, exponential_base=2, jitter=False)


class BusyError(Exception):
    """`retry_after_s` is the least delay before the next attempt: the service knows best."""

    retry_after_s = 0.5


@task(retries=SOON)
def unsteady(ctx: Context | None = None) -> str:
    match ctx.attempt if ctx else 0:
        case 1:
            raise ConnectionError("nobody answers")
        case 2:
            raise BusyError("come back in half a second")
        case attempt:
            return f"attempt {attempt} succeeded"


@task(retries=SOON)
def parse(number: str) -> int:
    """A ValueError is about the data: trying again would not help, so nobody does."""
    return int(number)


@workflow
def retries(number: str = "7") -> Any:
    return [unsteady(), parse(number)]
