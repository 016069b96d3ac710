"""Ten thousand tasks over a list that is known only when the workflow runs, in a few seconds.

Killed in between, it goes on with `runnel resume`; what was done is not done again.

    $ runnel run examples/large_map.py --concurrency 50
    {
      "numbers": 10000,
      "even": 5000
    }
"""

from typing import Any

from runnel import task, workflow


@task
def numbers(count: int) -> list[int]:
    return list(range(count))


@task
async def is_even(number: int) -> bool:
    return number % 2 == 0


@task
def total(found: list[bool]) -> dict[str, int]:
    return {"numbers": len(found), "even": sum(found)}


@workflow
def large_map(count: int = 10_000) -> Any:
    return total(is_even.map(numbers(count)))
