"""`runnel bench`"""

import asyncio
import signal
import sys
from typing import Annotated, TypeAlias

import typer

from runnel.app.process_signals import SIGNAL_EXIT_BASE
from runnel.bench.report import (
    BenchmarkOptions,
    BenchmarkRequest,
    Measured,
    build_document,
    build_request,
    format_rows,
    format_title,
    summarize_runs,
)
from runnel.bench.runs import measure_cold_starts, measure_embedded
from runnel.bench.workloads import STANDARD_WORKLOADS
from runnel.cli.errors import OK, TERMINATED
from runnel.cli.options import parse_setting
from runnel.cli.render.text import Cell, print_table, to_pretty_json
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import MissingExtraError

# The command starts private Redis and PostgreSQL servers unless the options name servers.
REQUIRED_EXTRAS = "postgres,redis"

Workload: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="[WORKLOAD]",
        help="The workload to measure: diamond, chain, fan, graph, map, waiting, load, start, "
        "takeover or archive.",
    ),
]
BackendName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="The backend to measure: memory, sqlite or redis. "
        "[dim]\\[default: sqlite, or redis with --redis-url][/dim]",
    ),
]
DurabilityName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="NAME",
        help="The durability of SQLite: process or power. [dim]\\[default: process][/dim]",
    ),
]
Slots: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="The number of slots of each worker. [dim]\\[default: 4][/dim]",
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="The number of worker processes, with the backend redis. [dim]\\[default: 1][/dim]",
    ),
]
Count: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="The number of executions; for a map, of items; for a load, of seconds. "
        "[dim]\\[default: 2000 diamonds, and for other workloads what takes as long][/dim]",
    ),
]
Repetitions: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="The number of measurements; their median is shown. "
        "[dim]\\[default: 3 for diamonds, else 1][/dim]",
    ),
]
Functions: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--functions",
        metavar="KIND",
        help="The decorated functions of diamond, chain and fan: sync or async. "
        "[dim]\\[default: sync][/dim]",
    ),
]
BenchRedis: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="The URL of the Redis server to measure. $REDIS_URL is ignored, because a benchmark "
        "uses the whole capacity of a server. [dim]\\[default: a private server][/dim]",
    ),
]
BenchPostgres: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--postgres-url",
        metavar="URL",
        help="The URL of the PostgreSQL server of the archive. "
        "[dim]\\[default: a private server, or none with --redis-url][/dim]",
    ),
]


def bench(
    workload: Workload = "diamond",
    *,
    backend: BackendName = None,
    durability: DurabilityName = None,
    concurrency: Slots = None,
    workers: Workers = None,
    count: Count = None,
    repetitions: Repetitions = None,
    functions: Functions = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the measurements as one JSON object.")
    ] = False,
    redis_url: BenchRedis = None,
    postgres_url: BenchPostgres = None,
) -> int:
    """Measure how fast this machine runs workflows.

    The nodes of diamond, chain and fan are decorated functions that take and return integers. The
    same graphs are then measured engine only: with nodes that do nothing. The other workloads,
    except start, are engine only. The backends memory and sqlite use a temporary directory.

    With the backend redis, the command starts an orchestrator and workers. On your own servers, it
    uses keys and tables with a prefix of their own, and removes them at the end.
    """
    options = BenchmarkOptions(
        backend=backend,
        durability=durability,
        concurrency=concurrency,
        workers=workers,
        count=count,
        repetitions=repetitions,
        functions=functions,
        redis_url=_parse_url("REDIS_URL", "--redis-url", redis_url),
        postgres_url=_parse_url("POSTGRES_URL", "--postgres-url", postgres_url),
    )
    request = build_request(workload, options)
    print(f"{format_title(request)}\n{request.description}", file=sys.stderr, flush=True)
    ended_by: list[int] = []
    try:
        measured = asyncio.run(_measure(request, ended_by))
    except asyncio.CancelledError:
        return SIGNAL_EXIT_BASE + ended_by[0] if ended_by else TERMINATED
    if as_json:
        print(to_pretty_json(build_document(request, measured)))
    else:
        _print_measurements(measured)
    return OK


async def _measure(request: BenchmarkRequest, ended_by: list[int]) -> Measured:
    """Runs the benchmark; SIGTERM and SIGHUP (a closed terminal) cancel it as Ctrl-C does.

    A cancelled benchmark removes its data from the user's servers. The number of the signal is
    added to `ended_by`.
    """
    measuring = asyncio.current_task()

    def end(number: int) -> None:
        ended_by.append(number)
        if measuring is not None:
            measuring.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # as `nohup` asks
            continue
        asyncio.get_running_loop().add_signal_handler(number, end, number)
    return await _measure_workload(request)


async def _measure_workload(request: BenchmarkRequest) -> Measured:
    if request.backend == "redis":
        return await _measure_on_servers(request)
    if request.workload == "start":
        return summarize_runs([await measure_cold_starts(RealClock(), request.count)])
    return await measure_embedded(
        request.workload,
        "memory" if request.backend == "memory" else request.durability,
        concurrency=request.concurrency,
        count=request.count,
        repetitions=request.repetitions,
        functions=request.functions,
    )


async def _measure_on_servers(request: BenchmarkRequest) -> Measured:
    try:  # the packages for servers may not be installed
        from runnel.bench.server_workloads import measure_on_servers, measure_special_workload
        from runnel.bench.servers import DeploymentLayout, open_servers
    except ModuleNotFoundError as error:
        missing = error.name or "redis"
        raise MissingExtraError(
            "bench --backend redis", REQUIRED_EXTRAS, missing=missing
        ) from error

    nonce = RandomIdGenerator().nonce()
    with open_servers(request.redis_url, request.postgres_url, nonce=nonce) as servers:
        if request.workload not in STANDARD_WORKLOADS:
            return await measure_special_workload(request, servers)
        return await measure_on_servers(
            request.workload,
            servers,
            DeploymentLayout(concurrency=request.concurrency, workers=request.workers),
            count=request.count,
            repetitions=request.repetitions,
            functions=request.functions,
        )


def _parse_url(variable: str, option: str, text: str | None) -> str | None:
    return None if text is None else str(parse_setting(variable, option, text))


def _print_measurements(measured: Measured) -> None:
    lines = [
        [Cell(name), Cell(f"{value:>10}", "bold"), Cell(f"{least:>10}", "dim"), Cell(most, "dim")]
        for name, value, least, most in format_rows(measured)
    ]
    print_table(["", f"{'MEDIAN':>10}", f"{'LEAST':>10}", "MOST"], lines)
