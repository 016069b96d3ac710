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
from runnel.api.requests import AfterParam, LimitParam, StrictRoute
from runnel.api.responses import describe_problems
from runnel.api.security.guard import require_scope
from runnel.api.state import AppStateDependency
from runnel.client.operations import (
    build_queue_views,
    build_worker_document,
    drain_worker,
    find_worker,
    get_worker_state,
    list_concurrency_keys,
    list_workers,
)
from runnel.core.values import Json
from runnel.telemetry.prometheus import MEDIA_TYPE
from runnel.views.token import Scope

router = APIRouter(tags=["operations"], route_class=StrictRoute)
READ, OPERATE = [require_scope(Scope.READ)], [require_scope(Scope.OPERATE)]

WorkerNameParam = Annotated[str, Path(description="As listed", max_length=500)]


@router.get(
    "/workers",
    operation_id="list_workers",
    summary="The workers: what each one takes, what it runs and since when, how it is",
    response_model=WorkerList,
    dependencies=READ,
    responses=describe_problems(),
)
async def workers(app_state: AppStateDependency) -> dict[str, Json]:
    found = await list_workers(app_state.backend.tasks)
    return {"items": [build_worker_document(each, app_state.settings) for each in found]}


@router.get(
    "/workers/{name}",
    operation_id="read_worker",
    summary="One worker",
    response_model=WorkerAnswer,
    dependencies=READ,
    responses=describe_problems(404, 422),
)
async def worker(name: WorkerNameParam, app_state: AppStateDependency) -> dict[str, Json]:
    return build_worker_document(
        await find_worker(app_state.backend.tasks, name), app_state.settings
    )


@router.post(
    "/workers/{name}/drain",
    operation_id="drain_worker",
    summary="Let a worker finish what it runs, and end its process",
    status_code=202,
    dependencies=OPERATE,
    responses=describe_problems(404, 409, 422),
)
async def drain(name: WorkerNameParam, app_state: AppStateDependency) -> Draining:
    await drain_worker(app_state.backend.tasks, name)
    return Draining(worker=name)


@router.get(
    "/queues",
    operation_id="list_queues",
    summary="The queues: what waits, since when, who takes it, and what is wrong with that",
    response_model=QueueList,
    dependencies=READ,
    responses=describe_problems(),
)
async def queues(app_state: AppStateDependency) -> dict[str, Json]:
    tasks = app_state.backend.tasks
    lines = build_queue_views(await tasks.queues(), await tasks.workers(), app_state.settings)
    return {"items": msgspec.to_builtins(lines)}


@router.get(
    "/limits",
    operation_id="list_limits",
    summary="The concurrency keys that somebody holds or waits for, by key",
    response_model=LimitPage,
    dependencies=READ,
    responses=describe_problems(422),
)
async def limits(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> dict[str, Json]:
    found = await list_concurrency_keys(app_state.backend.store, after=after or "", limit=limit)
    last = found[-1].key if len(found) == limit else None
    return {"items": msgspec.to_builtins(found), "next": last}


@router.get(
    "/partitions",
    operation_id="list_partitions",
    summary="The partitions: who decides for each, and what lies there undone",
    response_model=PartitionList,
    dependencies=READ,
    responses=describe_problems(),
)
async def partitions(app_state: AppStateDependency) -> dict[str, Json]:
    return {"items": msgspec.to_builtins(await app_state.partitions.inspect())}


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
async def ready(app_state: AppStateDependency, response: Response) -> Ready:
    found = await gather(
        *(
            app_state.probes.find_problem(part, partial(READINESS_CHECKS[part], app_state))
            for part in READINESS_CHECKS
        )
    )
    parts = dict(zip(READINESS_CHECKS, found, strict=True))
    needed = {part: parts[part] for part in REQUIRED_PARTS}
    if app_state.stopping.is_set():
        needed["server"] = "it is ending"
    acting = {part: parts[part] for part in READINESS_CHECKS if part not in REQUIRED_PARTS}
    parts = {**needed, **acting}
    if any(needed.values()):
        response.status_code = 503
        return Ready(status="not ready", parts=parts)
    return Ready(status="degraded" if any(acting.values()) else "ready", parts=parts)


async def _check_store(app_state: AppStateDependency) -> str | None:
    await app_state.backend.tasks.queues()
    return None


async def _check_archive(app_state: AppStateDependency) -> str | None:
    await app_state.backend.archive.list_workflows(limit=1)
    return None


async def _check_orchestrators(app_state: AppStateDependency) -> str | None:
    found = await app_state.partitions.inspect()
    orphaned = [each.partition for each in found if each.owner is None or each.is_silent]
    if not orphaned:
        return None
    if len(orphaned) == len(found):
        return "no orchestrator is there: nothing is decided"
    return f"{len(orphaned)} of {len(found)} partitions have no living orchestrator"


async def _check_workers(app_state: AppStateDependency) -> str | None:
    found = await app_state.backend.tasks.workers()
    if any(get_worker_state(each, app_state.settings) == "alive" for each in found):
        return None
    return "no worker is there: tasks wait"


REQUIRED_PARTS = ("store", "archive")
READINESS_CHECKS = {
    "store": _check_store,
    "archive": _check_archive,
    "orchestrators": _check_orchestrators,
    "workers": _check_workers,
}


# Numbers for Prometheus.

metrics_router = APIRouter(tags=["health"])


@metrics_router.get(
    "/metrics",
    operation_id="read_metrics",
    summary="Numbers of this process and of the store, as Prometheus reads them",
    response_class=Response,
    dependencies=[require_scope(Scope.READ)],
    responses={
        **describe_problems(),
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def metrics(app_state: AppStateDependency) -> Response:
    await app_state.gauges.refresh()
    return Response(app_state.exposition.render(), media_type=MEDIA_TYPE)
