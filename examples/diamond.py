"""A diamond of decorated functions: two tasks run in parallel, and one waits for both.

$ python examples/diamond.py
{'words': 4, 'size': 21}
$ runnel graph examples/diamond.py
      ╭───────╮
      │ fetch │
      ╰───┬───╯
    ╭─────┴────╮
    ▼          ▼
╭───────╮  ╭──────╮
│ parse │  │ scan │
╰───┬───╯  ╰───┬──╯
    ╰────┬─────╯
         ▼
     ╭───────╮
     │ merge │
     ╰───────╯
"""

import asyncio
import time
from typing import Any

from runnel import task, workflow


@task
def fetch(url: str) -> str:
    return f"a page of {url}"


@task
async def parse(page: str) -> list[str]:
    await asyncio.sleep(0.3)
    return page.split()


@task
def scan(page: str) -> int:
    time.sleep(0.3)
    return len(page)


@task
def merge(words: list[str], size: int) -> dict[str, int]:
    return {"words": len(words), "size": size}


@workflow
def report(url: str) -> Any:
    page = fetch(url)
    return merge(parse(page), scan(page))


if __name__ == "__main__":
    print(report.run("example.com"))
