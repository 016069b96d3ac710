"""`runnel doctor`"""

from typing import TYPE_CHECKING, Annotated

import typer

from runnel.cli import exits
from runnel.cli.options import DataDir, Place, RedisUrl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runnel.runtime.doctor import Finding

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

    from runnel.cli.options import configure
    from runnel.runtime.clock import RealClock, RealIds
    from runnel.runtime.doctor import Verdict, examine

    settings = configure(Place(data_dir, redis_url))
    findings = asyncio.run(examine(settings, RealClock(), RealIds()))
    if as_json:
        _print_json(findings)
    else:
        _print(findings)
    failing: set[Verdict] = {Verdict.BAD}
    if settings.environment == "prod":
        failing.add(Verdict.WARN)
    return exits.FAILED if any(each.verdict in failing for each in findings) else exits.OK


def _print(findings: "Sequence[Finding]") -> None:
    from runnel.cli.tables import Cell, print_styled

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
