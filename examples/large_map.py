"""Maps a task over 10,000 items in a few seconds; the list is known only at run time.

After a crash, `runnel resume` continues the execution. Completed items do not run again.

    $ runnel run examples/large_map.py --concurrency 50
    {
      "numbers": 10000,
      "even": 5000
    }
"""

from typing import Any

from runnel import task, workflow


@task
def list_numbers(size: int) -> list[int]:
    return list(range(size))


@task
async def is_even(number: int) -> bool:
    return number % 2 == 0


@task
def count(results: list[bool]) -> dict[str, int]:
    return {"numbers": len(results), "even": sum(results)}


@workflow
def large_map(size: int = 10_000) -> Any:
    return count(is_even.map(list_numbers(size)))
