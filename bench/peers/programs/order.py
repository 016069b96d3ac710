"""The order of a program, and how its work is timed and checked."""

import json
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ORDER_FILE = "order.json"
CHAIN_LENGTH = 20
FAN_WIDTH = 1_000
WARM_DIAMONDS = 100

# The result of the last node if each node ran once and received its parents' results.
EXPECTED = {
    "diamonds": 5,  # a = 1, b = a + 1, c = a + 2, d = b + c
    "chain": CHAIN_LENGTH,  # each adds 1
    "fan": FAN_WIDTH + sum(range(FAN_WIDTH)),  # a = 1, each b adds its number, z adds up
}

RunWorkload = Callable[[str, int], Awaitable[Sequence[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementOrder:
    workload: str
    count: int
    url: str
    settings: dict[str, Any]


def read_order() -> MeasurementOrder:
    return MeasurementOrder(**json.loads(Path(ORDER_FILE).read_text(encoding="utf-8")))


async def run_order(order: MeasurementOrder, run: RunWorkload) -> None:
    """Runs the order and prints its figures. Raises ValueError if a result is wrong.

    `run(workload, count)` submits `count` executions at once and returns their last results.
    """
    check_results("diamonds", await run("diamonds", WARM_DIAMONDS), WARM_DIAMONDS)
    match order.workload:
        case "diamonds":
            seconds = await _measure_seconds(run, "diamonds", order.count)
            rate = order.count / seconds
            figures = {"diamonds_per_s": rate, "nodes_per_s": 4 * rate}
        case "chain":
            times = [await _measure_seconds(run, "chain", 1) for _ in range(order.count)]
            figures = compute_edge_latencies(times)
        case "fan":
            figures = {"fan_1000_s": await _measure_seconds(run, "fan", 1)}
        case other:
            raise ValueError(f"unknown workload: {other}")
    print(json.dumps(figures), flush=True)


def compute_edge_latencies(seconds: list[float]) -> dict[str, float]:
    """Returns the latency per edge from the total times of chains."""
    times = sorted(1_000 * chain_s / CHAIN_LENGTH for chain_s in seconds)
    p50, p99 = (times[math.ceil(part * len(times)) - 1] for part in (0.5, 0.99))
    return {"edge_ms_p50": p50, "edge_ms_p99": p99}


def check_results(workload: str, results: Sequence[int], count: int) -> None:
    expected = EXPECTED[workload]
    wrong = [result for result in results if result != expected]
    if wrong or len(results) != count:
        raise ValueError(
            f"{workload}: {len(results)} of {count} returned, {len(wrong)} of them wrong: "
            f"expected {expected}, got for example {wrong[:1]}"
        )


async def _measure_seconds(run: RunWorkload, workload: str, count: int) -> float:
    started = time.perf_counter()
    results = await run(workload, count)
    seconds = time.perf_counter() - started
    check_results(workload, results, count)
    return seconds
