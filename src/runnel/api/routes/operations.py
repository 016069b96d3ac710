"""What an operator looks at: workers, queues, concurrency keys and partitions."""

from asyncio import gather
from functools import partial
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from runnel.api.models import (
    Draining,
    LimitPage,
    PartitionList,
    QueueList,
    WorkerAnswer,
    WorkerList,
)
from runnel.api.requests import After, Limit, StrictRoute
from runnel.api.responses import problems
from runnel.api.security.guard import needs
from runnel.api.security.tokens import Scope
from runnel.api.state import OfSite
from runnel.client.operations import (
    drain_worker,
    find_worker,
    lines_of,
    list_limits,
    list_workers,
    state_of,
    worker_document,
)
from runnel.core.values import Json
from runnel.telemetry.prometheus import MEDIA_TYPE

router = APIRouter(tags=["operations"], route_class=StrictRoute)
READ, OPERATE = [needs(Scope.READ)], [needs(Scope.OPERATE)]

WorkerName = Annotated[str, Path(description="As listed", max_length=500)]


@router.get(
    "/workers",
    operation_id="list_workers",
    summary="The workers: what each one takes, what it runs and since when, how it is",
    response_model=WorkerList,
    dependencies=READ,
    responses=problems(),
)
async def workers(site: OfSite) -> dict[str, Json]:
    found = await list_workers(site.backend.tasks)
    return {"items": [worker_document(each, site.settings) for each in found]}


@router.get(
    "/workers/{name}",
    operation_id="read_worker",
    summary="One worker",
    response_model=WorkerAnswer,
    dependencies=READ,
    responses=problems(404, 422),
)
async def worker(name: WorkerName, site: OfSite) -> dict[str, Json]:
    return worker_document(await find_worker(site.backend.tasks, name), site.settings)


@router.post(
    "/workers/{name}/drain",
    operation_id="drain_worker",
    summary="Let a worker finish what it runs, and end its process",
    status_code=202,
    dependencies=OPERATE,
    responses=problems(404, 409, 422),
)
async def drain(name: WorkerName, site: OfSite) -> Draining:
    await drain_worker(site.backend.tasks, name)
    return Draining(worker=name)


@router.get(
    "/queues",
    operation_id="list_queues",
    summary="The queues: what waits, since when, who takes it, and what is wrong with that",
    response_model=QueueList,
    dependencies=READ,
    responses=problems(),
)
async def queues(site: OfSite) -> dict[str, Json]:
    tasks = site.backend.tasks
    lines = lines_of(await tasks.queues(), await tasks.workers(), site.settings)
    return {"items": msgspec.to_builtins(lines)}


@router.get(
    "/limits",
    operation_id="list_limits",
    summary="The concurrency keys that somebody holds or waits for, by key",
    response_model=LimitPage,
    dependencies=READ,
    responses=problems(422),
)
async def limits(site: OfSite, limit: Limit = 50, after: After = None) -> dict[str, Json]:
    found = await list_limits(site.backend.store, after=after or "", limit=limit)
    last = found[-1].key if len(found) == limit else None
    return {"items": msgspec.to_builtins(found), "next": last}


@router.get(
    "/partitions",
    operation_id="list_partitions",
    summary="The partitions: who decides for each, and what lies there undone",
    response_model=PartitionList,
    dependencies=READ,
    responses=problems(),
)
async def partitions(site: OfSite) -> dict[str, Json]:
    return {"items": msgspec.to_builtins(await site.partitions.look())}


# Whether this process lives, and whether it can be given work.

health_router = APIRouter(tags=["health"], prefix="/health")


class Live(BaseModel):
    status: Literal["live"] = "live"


class Ready(BaseModel):
    """`parts` says of each why it is not ready; null when it is."""

    status: Literal["ready", "degraded", "not ready"] = Field(
        description="degraded: requests are taken, and nobody acts on them for now"
    )
    parts: dict[str, str | None]


@health_router.get("/live", operation_id="is_live", summary="This process answers")
async def live() -> Live:
    return Live()


@health_router.get(
    "/ready",
    operation_id="is_ready",
    summary="All parts that a request needs can be reached",
    responses={503: {"model": Ready, "description": "One of them can't be reached"}},
)
async def ready(site: OfSite, response: Response) -> Ready:
    found = await gather(*(site.probes.problem(part, partial(PARTS[part], site)) for part in PARTS))
    parts = dict(zip(PARTS, found, strict=True))
    needed = {part: parts[part] for part in NEEDED}
    if site.stopping.is_set():
        needed["server"] = "it is ending"
    acting = {part: parts[part] for part in PARTS if part not in NEEDED}
    parts = {**needed, **acting}
    if any(needed.values()):
        response.status_code = 503
        return Ready(status="not ready", parts=parts)
    return Ready(status="degraded" if any(acting.values()) else "ready", parts=parts)


async def _store(site: OfSite) -> str | None:
    await site.backend.tasks.queues()
    return None


async def _archive(site: OfSite) -> str | None:
    await site.backend.archive.list_workflows(limit=1)
    return None


async def _orchestrators(site: OfSite) -> str | None:
    found = await site.partitions.look()
    orphaned = [each.partition for each in found if each.owner is None or each.is_silent]
    if not orphaned:
        return None
    if len(orphaned) == len(found):
        return "no orchestrator is there: nothing is decided"
    return f"{len(orphaned)} of {len(found)} partitions have no living orchestrator"


async def _workers(site: OfSite) -> str | None:
    found = await site.backend.tasks.workers()
    if any(state_of(each, site.settings) == "alive" for each in found):
        return None
    return "no worker is there: tasks wait"


NEEDED = ("store", "archive")
PARTS = {
    "store": _store,
    "archive": _archive,
    "orchestrators": _orchestrators,
    "workers": _workers,
}


# Numbers for Prometheus.

metrics_router = APIRouter(tags=["health"])


@metrics_router.get(
    "/metrics",
    operation_id="read_metrics",
    summary="Numbers of this process and of the store, as Prometheus reads them",
    response_class=Response,
    dependencies=[needs(Scope.READ)],
    responses={
        **problems(),
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def metrics(site: OfSite) -> Response:
    await site.gauges.refresh()
    return Response(site.exposition.text(), media_type=MEDIA_TYPE)
