"""Whether everything has ended as it has to, and nothing is left anywhere."""

from collections import Counter
from collections.abc import Iterable

from runnel.backends.redis.backend import RedisBackend
from runnel.client.listing import iter_executions
from runnel.client.store_client import StoreClient
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.ports.archive import ExecutionFilter
from runnel.views.execution import ExecutionSummary, HistoryEvent
from tests.chaos.workflows import SHAPES

PAGE = 500
SETTLED = {"NodeCompleted", "NodeFailed", "NodeSkipped", "NodeCancelled"}
_BY_NAME = {shape.workflow.name: shape for shape in SHAPES}


async def list_all_headers(client: StoreClient) -> list[ExecutionSummary]:
    """Of every root, newest first."""
    return [summary async for summary in iter_executions(client, ExecutionFilter(limit=PAGE))]


def filter_unfinished(headers: Iterable[ExecutionSummary]) -> list[ExecutionSummary]:
    return [header for header in headers if header.status not in FINAL_EXECUTION_STATES]


async def find_problems(client: StoreClient, headers: Iterable[ExecutionSummary]) -> list[str]:
    """One sentence for each execution that did not end as it should."""
    found: list[str] = []
    for header in headers:
        shape = _BY_NAME[header.workflow]
        who = f"{header.workflow} {header.execution_id}"
        if header.status is not shape.state:
            found.append(f"{who} is {header.status}, expected {shape.state}: {header.error}")
        elif shape.state is ExecutionState.COMPLETED:
            output = (await client.get(header.execution_id)).output
            if output != shape.output:
                found.append(f"{who} gave {output}, expected {shape.output}")
        found += [
            f"{who}: {each}"
            for each in find_repeated_ends(await client.history(header.execution_id))
        ]
    return found


def find_repeated_ends(history: Iterable[HistoryEvent]) -> list[str]:
    """Nodes and items that were settled more than once, and attempts that were issued twice."""
    settled: Counter[tuple[object, ...]] = Counter()
    issued: Counter[tuple[object, ...]] = Counter()
    for event in history:
        place = (event.fields.get("node"), event.fields.get("item"))
        if event.event in SETTLED:
            settled[place] += 1
        elif event.event == "NodeQueued":
            issued[(*place, event.fields.get("attempt"))] += 1
    problems = [f"{place} was settled {count} times" for place, count in settled.items()]
    problems += [f"{place} was issued {count} times" for place, count in issued.items()]
    counts = [*settled.values(), *issued.values()]
    return [problem for problem, count in zip(problems, counts, strict=True) if count > 1]


async def find_leftovers(backend: RedisBackend) -> list[str]:
    """What is in an inbox, a queue, a timer set, a worker's hands or a lease."""
    keys, found = backend.keys, list[str]()

    async def length(command: str, pattern: str) -> None:
        for key in sorted(await backend.pool.call("KEYS", pattern)):
            if count := await backend.pool.call(command, key):
                found.append(f"{key.decode()} holds {count}")

    await length("XLEN", f"{keys.inbox}*")
    await length("XLEN", f"{keys.tasks}*")
    await length("ZCARD", f"{keys.timers}*")
    await length("ZCARD", f"{keys.running}*")
    await length("SCARD", f"{keys.limits}*")
    await length("HLEN", f"{keys.held}*")
    await length("HLEN", keys.task_locations)
    for key in sorted(await backend.pool.call("KEYS", f"{keys.partition}*")):
        if owner := await backend.pool.call("HGET", key, "owner"):
            found.append(f"{key.decode()} is owned by {owner.decode()}")
    return found
