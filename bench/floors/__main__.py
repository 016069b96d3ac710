"""Measures one floor: the maximum rate of executions on this machine.

`make bench` measures it in turn with the engine, and prints their ratio.
"""

import argparse
import asyncio
import json
import sys
from functools import partial
from statistics import median
from typing import Any, NoReturn

from bench.floors.measurement import (
    embedded_floor_for,
    measure_floor,
    name_floor,
    server_floor_for,
    settle_nothing,
)
from bench.floors.workloads import WORKLOADS
from bench.numbers import parse_positive
from runnel.bench.report import (
    BenchmarkOptions,
    BenchmarkRequest,
    build_request,
    format_number,
    format_title,
)
from runnel.bench.servers import DeploymentLayout, open_servers, settle
from runnel.engine.clock import RandomIdGenerator
from runnel.errors import InputError, RunnelError

FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def main(arguments: list[str] | None = None) -> int:
    try:
        chosen = _parser().parse_args(arguments)
        request = _check(chosen)
        print(f"floor of {format_title(request)}", file=sys.stderr, flush=True)
        rates = asyncio.run(_measure(request))
    except InputError as error:
        return _complain(error, WRONG_INPUT)
    except RunnelError as error:
        return _complain(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    document: dict[str, Any] = {
        "floor_per_s": median(rates),
        "floor_spread": (min(rates), max(rates)),
    }
    print(json.dumps(document) if chosen.json else _describe(rates))
    return 0


def _parser() -> Parser:
    parser = Parser(prog="python -m bench.floors", description=__doc__)
    parser.add_argument("workload", help=", ".join(WORKLOADS))
    parser.add_argument("--backend", default="sqlite", help="memory, sqlite (default) or redis")
    parser.add_argument("--durability", help="durability of SQLite: process (default) or power")
    parser.add_argument("--concurrency", type=parse_positive, help="slots of each worker (4)")
    parser.add_argument("--workers", type=parse_positive, help="worker processes on servers (1)")
    parser.add_argument(
        "--count", type=parse_positive, help="number of executions (default as in `runnel bench`)"
    )
    parser.add_argument(
        "--repetitions", type=parse_positive, help="repetitions; the median is printed"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _check(chosen: argparse.Namespace) -> BenchmarkRequest:
    """Returns the request of the options; raises InputError."""
    if chosen.workload not in WORKLOADS:
        known = ", ".join(WORKLOADS)
        raise InputError(f"expected a workload with a floor ({known}), got '{chosen.workload}'")
    options = BenchmarkOptions(
        backend=chosen.backend,
        durability=chosen.durability,
        concurrency=chosen.concurrency,
        workers=chosen.workers,
        count=chosen.count,
        repetitions=chosen.repetitions,
    )
    return build_request(chosen.workload, options)


async def _measure(request: BenchmarkRequest) -> list[float]:
    workload, count, repetitions = request.workload, request.count, request.repetitions
    if request.backend != "redis":
        storage_mode = "memory" if request.backend == "memory" else request.durability
        async with embedded_floor_for(workload, storage_mode, request.concurrency) as floor:
            return await measure_floor(workload, floor, count, repetitions, settle_nothing)
    layout = DeploymentLayout(concurrency=request.concurrency, workers=request.workers)
    with open_servers(nonce=RandomIdGenerator().nonce()) as private:
        async with server_floor_for(workload, private, layout) as floor:
            settle_floor = partial(settle, name_floor(private))
            return await measure_floor(workload, floor, count, repetitions, settle_floor)


def _describe(rates: list[float]) -> str:
    lowest, middle, highest = map(format_number, (min(rates), median(rates), max(rates)))
    return f"floor: {middle} executions per second ({lowest} to {highest})"


def _complain(error: RunnelError, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
