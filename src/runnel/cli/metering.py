"""Metrics of a process on a port of their own, where it has been given one."""

import sys
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from runnel.cli.serving import Site
    from runnel.runtime.roles import Role

PORT_MAX = 65_535

MetricsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=PORT_MAX,
        help="Show metrics for Prometheus there; 0 is one that is free. "
        "[dim]\\[default: $RUNNEL_METRICS_PORT, or not at all][/dim]",
        show_default=False,
    ),
]


def metered(role: "Role", site: "Site", *, decides: bool) -> "Role":
    """Only who `decides` has the whole store to show; raises InputError for a port that is taken.

    What it needs takes 0.3 s to import: nobody pays for that without a port.
    """
    settings = site.settings
    if site.metrics is None or settings.metrics_port is None:
        return role
    from runnel.api.metrics_server import PATH, MeteredRole
    from runnel.api.server import listen, url_of
    from runnel.operations.gauges import StoreGauges
    from runnel.operations.partitions import Partitions
    from runnel.telemetry.exposition import Exposition

    clock, backend = site.world.clock, site.backend
    listening = listen(settings.metrics_host, settings.metrics_port, option="--metrics-port")
    listening.set_inheritable(False)
    exposition, refresh = Exposition(site.metrics.families), None
    if decides:
        partitions = Partitions(backend.store, clock, lease_s=settings.lease_s)
        gauges = StoreGauges(backend, clock, settings, partitions)
        exposition.add(gauges.families)
        refresh = gauges.refresh
    print(f"metrics on {url_of(listening)}{PATH}", file=sys.stderr, flush=True)
    return MeteredRole(role, exposition, listening, refresh=refresh)


def ports_for(first: int | None, count: int) -> list[list[str]]:
    """What each of several processes is given: a port of its own, the next ones in turn.

    Raises InputError when there are not so many.
    """
    from runnel.errors import InputError

    if not first:
        return [[] if first is None else ["--metrics-port", "0"]] * count
    if first + count - 1 > PORT_MAX:
        raise InputError(
            f"--metrics-port: {count} processes need a port each from {first} on, and {PORT_MAX} "
            "is the last one; give a lower one"
        )
    return [["--metrics-port", str(first + number)] for number in range(count)]
