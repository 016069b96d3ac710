"""The floor: the least that any engine of this design must do for diamonds, and nothing else.

One loop runs no-op tasks, one writer takes what has finished, counts parents and stores in SQLite:
a row for each execution that is submitted, one per execution and batch for what happened to it,
and its final state. No fencing, retries, reading back, templates, reports or tokens.
"""

import asyncio
import sqlite3
import time
from collections import deque
from pathlib import Path

CHILDREN = {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}
PARENTS = {"a": 0, "b": 1, "c": 1, "d": 2}
BATCH_MAX = 512
SLOTS = 4


class Floor:
    def __init__(self, path: Path, durability: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
        self._db.execute("CREATE TABLE h (id TEXT, seq INTEGER, entry BLOB)")
        self._db.execute("CREATE TABLE x (id TEXT PRIMARY KEY, state TEXT) WITHOUT ROWID")
        self._tasks: deque[tuple[str, str]] = deque()
        self._done: deque[tuple[str, str]] = deque()
        self._missing: dict[str, dict[str, int]] = {}
        self._left = 0
        self._work = asyncio.Event()
        self._results = asyncio.Event()

    async def run(self, count: int) -> float:
        """Seconds for `count` diamonds."""
        self._left = count
        started = time.perf_counter()
        rows = []
        for number in range(count):
            execution = f"e{number}"
            self._missing[execution] = dict(PARENTS)
            self._tasks.append((execution, "a"))
            rows.append((execution, 0, b'{"started":"a"}'))
        self._store(rows, [(execution, "RUNNING") for execution, _, _ in rows])
        self._work.set()
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._worker()) for _ in range(SLOTS)]
            await self._writer()
            for worker in workers:
                worker.cancel()
        self._db.close()
        return time.perf_counter() - started

    async def _worker(self) -> None:
        while True:
            if not self._tasks:
                self._work.clear()
                await self._work.wait()
                continue
            task = self._tasks.popleft()
            await _noop()
            self._done.append(task)
            self._results.set()

    async def _writer(self) -> None:
        sequence = 0
        while self._left:
            await self._results.wait()
            self._results.clear()
            sequence += 1
            touched: dict[str, list[str]] = {}
            ready = []
            ended = []
            for _ in range(min(BATCH_MAX, len(self._done))):
                execution, node = self._done.popleft()
                touched.setdefault(execution, []).append(node)
                missing = self._missing[execution]
                for child in CHILDREN[node]:
                    missing[child] -= 1
                    if not missing[child]:
                        ready.append((execution, child))
                if node == "d":
                    ended.append((execution, "COMPLETED"))
            self._left -= len(ended)
            entries = [(e, sequence, ",".join(nodes).encode()) for e, nodes in touched.items()]
            self._store(entries, ended)
            self._tasks.extend(ready)
            self._work.set()
            if self._done:
                self._results.set()
            await asyncio.sleep(0)

    def _store(self, rows: list[tuple[str, int, bytes]], states: list[tuple[str, str]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT OR REPLACE INTO x VALUES (?, ?)", states)
        self._db.executemany("INSERT INTO h VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")


async def _noop() -> None:
    return None
