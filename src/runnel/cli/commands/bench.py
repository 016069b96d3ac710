"""`runnel bench`"""

import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from runnel.cli import errors as exits

if TYPE_CHECKING:
    from runnel.bench.report import BenchmarkRequest, Measured


# Without URLs it starts both servers.
REQUIRED_EXTRAS = "postgres,redis"

Workload: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="[WORKLOAD]",
        help="diamond, chain, fan, graph, map, waiting, load, start, takeover or archive.",
    ),
]
BackendName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="memory, sqlite or redis. [dim]\\[default: sqlite, or redis with --redis-url][/dim]",
        show_default=False,
    ),
]
DurabilityName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--durability",
        metavar="NAME",
        help="Of SQLite: process or power. [dim]\\[default: process][/dim]",
        show_default=False,
    ),
]
Slots: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--concurrency",
        metavar="N",
        min=1,
        help="Slots of each worker. [dim]\\[default: 4][/dim]",
        show_default=False,
    ),
]
Workers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Worker processes on servers. [dim]\\[default: 1][/dim]",
        show_default=False,
    ),
]
Count: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="How many executions; of a map, items; of a load, seconds. "
        "[dim]\\[default: 2000 diamonds, and what takes as long of the others][/dim]",
        show_default=False,
    ),
]
Repetitions: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="How often; the median is shown. [dim]\\[default: 3 of diamonds, else 1][/dim]",
        show_default=False,
    ),
]
BenchRedis: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--redis-url",
        metavar="URL",
        help="Your Redis: the environment is not asked, because this takes all that a server "
        "has. [dim]\\[default: a private one][/dim]",
        show_default=False,
    ),
]
BenchPostgres: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--postgres-url",
        metavar="URL",
        help="Your PostgreSQL as its archive. [dim]\\[default: a private one, or none with "
        "--redis-url][/dim]",
        show_default=False,
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    redis_url: BenchRedis = None,
    postgres_url: BenchPostgres = None,
) -> int:
    """Measure how fast workflows go here, with nodes that do nothing.

    Embedded, it works in a temporary folder. On servers it starts an orchestrator and workers of
    its own; on yours, all its keys and tables have a name of their own and are removed afterwards.
    """
    import asyncio

    from runnel.bench.report import BenchmarkOptions, build_document, build_request, format_title
    from runnel.cli.render.text import to_pretty_json

    options = BenchmarkOptions(
        backend=backend,
        durability=durability,
        concurrency=concurrency,
        workers=workers,
        count=count,
        repetitions=repetitions,
        redis_url=_parse_url("REDIS_URL", "--redis-url", redis_url),
        postgres_url=_parse_url("POSTGRES_URL", "--postgres-url", postgres_url),
    )
    wanted = build_request(workload, options)
    print(f"{format_title(wanted)}\n{wanted.description}", file=sys.stderr, flush=True)
    ended_by: list[int] = []
    try:
        measured = asyncio.run(_measure(wanted, ended_by))
    except asyncio.CancelledError:
        return exits.SIGNAL_BASE + ended_by[0] if ended_by else exits.TERMINATED
    if as_json:
        print(to_pretty_json(build_document(wanted, measured)))
    else:
        _print_measurements(measured)
    return exits.OK


async def _measure(request: "BenchmarkRequest", ended_by: list[int]) -> "Measured":
    """SIGTERM and SIGHUP (a terminal that is closed) cancel it, as Ctrl-C does: what it has on
    servers of others is removed then. `ended_by` gets the number of the signal.
    """
    import asyncio
    import signal

    measuring = asyncio.current_task()

    def end(number: int) -> None:
        ended_by.append(number)
        if measuring is not None:
            measuring.cancel()

    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_IGN:  # as `nohup` asks
            continue
        asyncio.get_running_loop().add_signal_handler(each, end, each)
    return await _measure_workload(request)


async def _measure_workload(request: "BenchmarkRequest") -> "Measured":
    from runnel.bench.report import summarize_runs
    from runnel.bench.runs import measure_cold_starts, measure_embedded
    from runnel.bench.workloads import STANDARD_WORKLOADS
    from runnel.engine.clock import RealClock

    if request.backend == "redis":
        return await _measure_on_servers(request)
    if request.workload == "start":
        return summarize_runs([await measure_cold_starts(RealClock(), request.count)])
    return await measure_embedded(
        STANDARD_WORKLOADS[request.workload],
        "memory" if request.backend == "memory" else request.durability,
        concurrency=request.concurrency,
        count=request.count,
        repetitions=request.repetitions,
    )


async def _measure_on_servers(request: "BenchmarkRequest") -> "Measured":
    from runnel.bench.workloads import STANDARD_WORKLOADS
    from runnel.engine.clock import RandomIdGenerator
    from runnel.errors import MissingExtraError

    try:
        from runnel.bench.server_workloads import measure_on_servers, measure_special_workload
        from runnel.bench.servers import DeploymentLayout, open_servers
    except ModuleNotFoundError as error:
        missing = error.name or "redis"
        raise MissingExtraError(
            "bench --backend redis", REQUIRED_EXTRAS, missing=missing
        ) from error

    nonce = RandomIdGenerator().nonce()
    with open_servers(request.redis_url, request.postgres_url, nonce=nonce) as found:
        if request.workload not in STANDARD_WORKLOADS:
            return await measure_special_workload(request, found)
        return await measure_on_servers(
            STANDARD_WORKLOADS[request.workload],
            found,
            DeploymentLayout(concurrency=request.concurrency, workers=request.workers),
            count=request.count,
            repetitions=request.repetitions,
        )


def _parse_url(variable: str, option: str, text: str | None) -> str | None:
    from runnel.cli.options import parse_setting

    return None if text is None else str(parse_setting(variable, option, text))


def _print_measurements(measured: "Measured") -> None:
    from runnel.bench.report import format_rows
    from runnel.cli.render.text import Cell, print_table

    lines = [
        [Cell(name), Cell(f"{value:>10}", "bold"), Cell(f"{least:>10}", "dim"), Cell(most, "dim")]
        for name, value, least, most in format_rows(measured)
    ]
    print_table(["", f"{'MEDIAN':>10}", f"{'LEAST':>10}", "MOST"], lines)
