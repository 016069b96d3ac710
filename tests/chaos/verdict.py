"""Checks that every execution ended as expected and that nothing remains in Redis."""

from collections import Counter
from collections.abc import Iterable

from runnel.backends.redis.backend import RedisBackend
from runnel.client.execution_lists import iter_executions
from runnel.client.store_client import StoreClient
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import ExecutionSummary, HistoryEvent
from tests.chaos.workflows import SHAPES

PAGE = 500
SETTLED = {"NodeCompleted", "NodeFailed", "NodeSkipped", "NodeCancelled"}
_BY_NAME = {shape.workflow.name: shape for shape in SHAPES}


async def list_all_headers(client: StoreClient) -> list[ExecutionSummary]:
    """Returns the summaries of all root executions, newest first."""
    return [summary async for summary in iter_executions(client, ExecutionFilter(limit=PAGE))]


def filter_unfinished(headers: Iterable[ExecutionSummary]) -> list[ExecutionSummary]:
    return [header for header in headers if header.status not in FINAL_EXECUTION_STATES]


async def find_problems(client: StoreClient, headers: Iterable[ExecutionSummary]) -> list[str]:
    """Returns one sentence for each execution with a wrong state, output or history."""
    problems: list[str] = []
    for header in headers:
        shape = _BY_NAME[header.workflow]
        name = f"{header.workflow} {header.execution_id}"
        if header.status is not shape.state:
            problems.append(f"{name} is {header.status}, expected {shape.state}: {header.error}")
        elif shape.state is ExecutionState.COMPLETED:
            output = (await client.get(header.execution_id)).output
            if output != shape.output:
                problems.append(f"{name} has the output {output}, expected {shape.output}")
        problems += [
            f"{name}: {problem}"
            for problem in find_repeated_ends(await client.history(header.execution_id))
        ]
    return problems


def find_repeated_ends(history: Iterable[HistoryEvent]) -> list[str]:
    """Returns nodes and items that settled more than once, and attempts issued twice."""
    settled: Counter[tuple[object, ...]] = Counter()
    issued: Counter[tuple[object, ...]] = Counter()
    for event in history:
        position = (event.fields.get("node"), event.fields.get("item"))
        if event.event in SETTLED:
            settled[position] += 1
        elif event.event == "NodeQueued":
            issued[(*position, event.fields.get("attempt"))] += 1
    problems = [f"{position} settled {count} times" for position, count in settled.items()]
    problems += [f"{position} was issued {count} times" for position, count in issued.items()]
    counts = [*settled.values(), *issued.values()]
    return [problem for problem, count in zip(problems, counts, strict=True) if count > 1]


async def find_leftovers(backend: RedisBackend) -> list[str]:
    """Returns the keys of inboxes, queues, timers, held tasks and leases that are not empty."""
    keys, leftovers = backend.keys, list[str]()

    async def length(command: str, pattern: str) -> None:
        for key in sorted(await backend.pool.call("KEYS", pattern)):
            if count := await backend.pool.call(command, key):
                leftovers.append(f"{key.decode()} holds {count}")

    await length("XLEN", f"{keys.inbox}*")
    await length("ZCARD", f"{keys.lanes}*")
    await length("ZCARD", f"{keys.arrivals}*")
    await length("ZCARD", f"{keys.timers}*")
    await length("ZCARD", f"{keys.running}*")
    await length("SCARD", f"{keys.limits}*")
    await length("HLEN", f"{keys.held}*")
    await length("HLEN", keys.task_locations)
    for key in sorted(await backend.pool.call("KEYS", f"{keys.partition}*")):
        if owner := await backend.pool.call("HGET", key, "owner"):
            leftovers.append(f"{key.decode()} is owned by {owner.decode()}")
    return leftovers
