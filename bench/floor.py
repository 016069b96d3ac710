"""The floor: the least that any engine of this design must do for diamonds, and nothing else.

Workers take no-op tasks from an asyncio queue, a writer takes what has finished from another,
counts parents and stores in SQLite: a row for each execution that is submitted, one per execution
and batch for what happened to it, and its final state; whoever submitted waits for a future. No
fencing, retries, reading back, templates, start check, heartbeats or tokens.
"""

import asyncio
import itertools
import sqlite3
import time
from pathlib import Path

CHILDREN = {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}
PARENTS = {"a": 0, "b": 1, "c": 1, "d": 2}
BATCH_MAX = 512
GATHER_TURNS = 20
SLOTS = 4


class Floor:
    def __init__(self, path: Path, durability: str) -> None:
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={'FULL' if durability == 'power' else 'NORMAL'}")
        self._db.execute("CREATE TABLE h (id TEXT, seq INTEGER, entry BLOB)")
        self._db.execute("CREATE TABLE x (id TEXT PRIMARY KEY, state TEXT) WITHOUT ROWID")
        self._tasks: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._done: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._missing: dict[str, dict[str, int]] = {}
        self._waiters: dict[str, asyncio.Future[None]] = {}

    async def run(self, count: int) -> float:
        """Seconds for `count` diamonds."""
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            loops = [group.create_task(self._worker()) for _ in range(SLOTS)]
            loops.append(group.create_task(self._writer()))
            await asyncio.gather(*[self._execute(f"e{number}") for number in range(count)])
            for loop in loops:
                loop.cancel()
        self._db.close()
        return time.perf_counter() - started

    async def _execute(self, execution: str) -> None:
        self._missing[execution] = dict(PARENTS)
        self._waiters[execution] = asyncio.get_running_loop().create_future()
        self._done.put_nowait((execution, ""))
        await self._waiters[execution]

    async def _worker(self) -> None:
        while True:
            task = await self._tasks.get()
            await _noop()
            self._done.put_nowait(task)
            await asyncio.sleep(0)

    async def _writer(self) -> None:
        for sequence in itertools.count():
            batch = [await self._done.get()]
            for _ in range(GATHER_TURNS):
                await asyncio.sleep(0)
            while len(batch) < BATCH_MAX and not self._done.empty():
                batch.append(self._done.get_nowait())
            touched: dict[str, list[str]] = {}
            ready: list[tuple[str, str]] = []
            states: list[tuple[str, str]] = []
            for execution, node in batch:
                touched.setdefault(execution, []).append(node)
                self._settle(execution, node, ready, states)
            entries = [(e, sequence, ",".join(nodes).encode()) for e, nodes in touched.items()]
            self._store(entries, states)
            for task in ready:
                self._tasks.put_nowait(task)
            for execution, state in states:
                if state == "COMPLETED":
                    self._waiters[execution].set_result(None)

    def _settle(
        self,
        execution: str,
        node: str,
        ready: list[tuple[str, str]],
        states: list[tuple[str, str]],
    ) -> None:
        if not node:
            states.append((execution, "RUNNING"))
            ready.append((execution, "a"))
            return
        missing = self._missing[execution]
        for child in CHILDREN[node]:
            missing[child] -= 1
            if not missing[child]:
                ready.append((execution, child))
        if node == "d":
            states.append((execution, "COMPLETED"))

    def _store(self, rows: list[tuple[str, int, bytes]], states: list[tuple[str, str]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT OR REPLACE INTO x VALUES (?, ?)", states)
        self._db.executemany("INSERT INTO h VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")


async def _noop() -> None:
    return None
