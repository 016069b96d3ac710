"""`runnel doctor`"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from runnel.app.doctor import Finding, Verdict, examine
from runnel.cli.errors import FAILED, OK
from runnel.cli.options import DirectLocation, configure
from runnel.cli.render.text import Cell, print_styled
from runnel.engine.clock import RandomIdGenerator, RealClock

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


async def doctor(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per finding, for programs.")
    ] = False,
    location: DirectLocation,
) -> int:
    """Check settings and servers, and suggest a fix for each problem.

    Exit code: 1 if a finding is bad, else 0. With RUNNEL_ENV=prod, a warning counts as bad.
    """
    settings = configure(location)
    findings = await examine(settings, RealClock(), RandomIdGenerator())
    if as_json:
        for finding in findings:
            print(msgspec.json.encode(finding).decode())
    else:
        _print_findings(findings)
    failing: set[Verdict] = {Verdict.BAD}
    if settings.environment == "prod":
        failing.add(Verdict.WARN)
    return FAILED if any(finding.verdict in failing for finding in findings) else OK


def _print_findings(findings: Sequence[Finding]) -> None:
    width = max(len(finding.about) for finding in findings)
    for finding in findings:
        print_styled(
            [
                Cell(f"{finding.verdict:<5}", _STYLES[finding.verdict]),
                Cell(f"{finding.about:<{width}}  ", "bold"),
                Cell(finding.found),
            ]
        )
        if finding.remedy:
            print_styled([Cell(f"{'':<{width + 7}}{finding.remedy}", "cyan")])
