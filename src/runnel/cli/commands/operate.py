"""`runnel doctor`"""

import sys
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from runnel.cli import errors as exits
from runnel.cli.options import DataDir, RedisUrl, StoreLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.app.doctor import Finding
    from runnel.ports import Backend
    from runnel.ports.archive import Retention
    from runnel.ports.clock import Clock, IdGenerator
    from runnel.settings.model import Settings


_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


def doctor(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per finding, for programs.")
    ] = False,
    data_dir: DataDir = None,
    redis_url: RedisUrl = None,
) -> int:
    """Check the settings and the servers, and say what to do about each problem.

    Exit code: 0 when nothing is bad, 1 otherwise. With RUNNEL_ENV=prod a warning counts as bad.
    """
    import asyncio

    from runnel.app.doctor import Verdict, examine
    from runnel.cli.options import configure
    from runnel.engine.clock import RandomIdGenerator, RealClock

    settings = configure(StoreLocation(data_dir, redis_url))
    findings = asyncio.run(examine(settings, RealClock(), RandomIdGenerator()))
    if as_json:
        _print_json(findings)
    else:
        _print_findings(findings)
    failing: set[Verdict] = {Verdict.BAD}
    if settings.environment == "prod":
        failing.add(Verdict.WARN)
    return exits.FAILED if any(each.verdict in failing for each in findings) else exits.OK


def _print_findings(findings: "Sequence[Finding]") -> None:
    from runnel.cli.render.text import Cell, print_styled

    width = max(len(each.about) for each in findings)
    for each in findings:
        print_styled(
            [
                Cell(f"{each.verdict:<5}", _STYLES[each.verdict]),
                Cell(f"{each.about:<{width}}  ", "bold"),
                Cell(each.found),
            ]
        )
        if each.remedy:
            print_styled([Cell(f"{'':<{width + 7}}{each.remedy}", "cyan")])


def _print_json(findings: "Sequence[Finding]") -> None:
    import msgspec

    for each in findings:
        print(msgspec.json.encode(each).decode())


# `runnel config`


def config(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with every setting.")
    ] = False,
) -> int:
    """Print every setting, its value and where that comes from; secrets are hidden.

    Settings are environment variables; docs/reference/settings.md says what each one does.
    """
    from runnel.cli.render.text import Cell, print_table, to_compact_json
    from runnel.settings import find_misspelled_variables, list_settings, read_sourced_settings

    reading = read_sourced_settings()
    lines = list_settings(reading)
    if as_json:
        print(to_compact_json({line.variable: line.value for line in lines}))
    else:
        rows = [
            [
                Cell(line.variable, "bold" if line.is_given else ""),
                Cell(line.value),
                Cell(line.source, "cyan" if line.is_given else "dim"),
            ]
            for line in lines
        ]
        print_table(["SETTING", "VALUE", "FROM"], rows)
    for sentence in find_misspelled_variables():
        print(f"warning: {sentence}", file=sys.stderr)
    return exits.OK


# `runnel trim`


class TrimResult(NamedTuple):
    """`blobs` are large values that belonged to no execution."""

    executions: int
    blobs: int
    queues: int = 0


def trim(*, data_dir: DataDir = None, redis_url: RedisUrl = None) -> int:
    """Delete what nobody needs any more, now.

    Executions that ended longer ago than RETENTION_<STATE>_DAYS, and large values that belong to
    none; on a server, empty queues too.

    On servers, orchestrators do this by themselves. What is unfinished is never touched.
    """
    import asyncio

    from runnel.app.stores import STORE_ONLY
    from runnel.cli.options import configure
    from runnel.cli.render.text import format_count
    from runnel.engine.clock import RandomIdGenerator, RealClock
    from runnel.errors import InputError

    settings = configure(StoreLocation(data_dir, redis_url))
    if settings.has_server:
        raise InputError(STORE_ONLY)
    done = asyncio.run(_trim(settings, RealClock(), RandomIdGenerator()))
    parts = [format_count(done.executions, "execution"), format_count(done.queues, "empty queue")]
    if done.blobs:
        parts.append(f"{format_count(done.blobs, 'large value')} of no execution")
    print(f"deleted: {', '.join(parts)}")
    return exits.OK


async def _trim(settings: "Settings", clock: "Clock", ids: "IdGenerator") -> TrimResult:
    from runnel.app.stores import NoDataError, has_data, open_archived, open_sqlite, open_unarchived

    if not settings.has_redis:
        if not has_data(settings):
            raise NoDataError(settings.data_dir)
        local = await open_sqlite(settings, clock, ids)
        try:
            return await _delete_old(local.retention, settings, clock)
        finally:
            await local.close()
    opens = open_archived if settings.has_postgres else open_unarchived
    server = await opens(settings, clock, ids)
    try:
        deleted = await _delete_old(server.retention, settings, clock)
        return deleted._replace(queues=await _forget_queues(server))
    finally:
        await server.close()


async def _delete_old(retention: "Retention", settings: "Settings", clock: "Clock") -> TrimResult:
    from runnel.core.states import ExecutionState
    from runnel.engine.services.retention import RetentionService
    from runnel.telemetry.logs import LogTelemetry

    days = {ExecutionState(state): kept for state, kept in settings.retention_days.items()}
    service = RetentionService(retention, clock, LogTelemetry(), days=days)
    deleted = 0
    while batch := await service.tick():
        deleted += batch
    return TrimResult(deleted, await service.sweep())


async def _forget_queues(backend: "Backend") -> int:
    """A queue that gets a task meanwhile stays."""
    empty = [record for record in await backend.tasks.queues() if not record.depth]
    return sum([await backend.store.forget_queue(record) for record in empty])
