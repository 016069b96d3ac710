"""What an operator looks at: workers, queues, concurrency keys, partitions, health and metrics."""

from asyncio import gather
from functools import partial
from typing import Annotated

from fastapi import Path, Response

from runnel.api.requests import AfterParam, LimitParam
from runnel.api.responses import make_view_response
from runnel.api.routing import OtherAnswer, ResourceRouter
from runnel.api.state import AppStateDependency
from runnel.client.operations import (
    build_queue_views,
    build_worker_view,
    drain_worker,
    find_worker,
    get_worker_state,
    list_concurrency_keys,
)
from runnel.client.operations import list_workers as list_worker_records
from runnel.telemetry.prometheus import MEDIA_TYPE
from runnel.views.operations import (
    ConcurrencyKeyView,
    DrainingWorker,
    Liveness,
    PartitionView,
    QueueView,
    Readiness,
    WorkerStatus,
    WorkerView,
)
from runnel.views.page import Listing, Page
from runnel.views.token import Scope

routes = ResourceRouter("operations")

WorkerNameParam = Annotated[str, Path(description="As listed", max_length=500)]


@routes.operation(
    "GET",
    "/workers",
    "The workers: what each one takes, what it runs and since when, how it is",
    scope=Scope.READ,
)
async def list_workers(app_state: AppStateDependency) -> Listing[WorkerView]:
    records = await list_worker_records(app_state.backend.tasks)
    return Listing(items=[build_worker_view(record, app_state.settings) for record in records])


@routes.operation("GET", "/workers/{name}", "One worker", scope=Scope.READ, problems=(404, 422))
async def read_worker(name: WorkerNameParam, app_state: AppStateDependency) -> WorkerView:
    record = await find_worker(app_state.backend.tasks, name)
    return build_worker_view(record, app_state.settings)


@routes.operation(
    "POST",
    "/workers/{name}/drain",
    "Let a worker finish what it runs, and end its process",
    operation_id="drain_worker",
    scope=Scope.OPERATE,
    problems=(404, 409, 422),
    status=202,
)
async def drain(name: WorkerNameParam, app_state: AppStateDependency) -> DrainingWorker:
    await drain_worker(app_state.backend.tasks, name)
    return DrainingWorker(worker=name)


@routes.operation(
    "GET",
    "/queues",
    "The queues: what waits, since when, who takes it, and what is wrong with that",
    scope=Scope.READ,
)
async def list_queues(app_state: AppStateDependency) -> Listing[QueueView]:
    tasks = app_state.backend.tasks
    queues, workers = await tasks.queues(), await tasks.workers()
    return Listing(items=build_queue_views(queues, workers, app_state.settings))


@routes.operation(
    "GET",
    "/limits",
    "The concurrency keys that somebody holds or waits for, by key",
    scope=Scope.READ,
    problems=(422,),
)
async def list_limits(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> Page[ConcurrencyKeyView]:
    keys = await list_concurrency_keys(app_state.backend.store, after=after or "", limit=limit)
    return Page(items=keys, next=keys[-1].key if len(keys) == limit else None)


@routes.operation(
    "GET",
    "/partitions",
    "The partitions: who decides for each, and what lies there undone",
    scope=Scope.READ,
)
async def list_partitions(app_state: AppStateDependency) -> Listing[PartitionView]:
    return Listing(items=await app_state.partitions.inspect())


# Whether this process lives, and whether it can be given work.

health_routes = ResourceRouter("health", prefix="/health")


@health_routes.operation("GET", "/live", "This process answers", problems=None)
async def is_live() -> Liveness:
    return Liveness()


@health_routes.operation(
    "GET",
    "/ready",
    "All parts that a request needs can be reached",
    problems=None,
    others={503: OtherAnswer("One of them can't be reached", view=Readiness)},
)
async def is_ready(app_state: AppStateDependency) -> Readiness | Response:
    problems = await gather(
        *(
            app_state.probes.find_problem(part, partial(READINESS_CHECKS[part], app_state))
            for part in READINESS_CHECKS
        )
    )
    parts = dict(zip(READINESS_CHECKS, problems, strict=True))
    needed = {part: parts[part] for part in REQUIRED_PARTS}
    if app_state.stopping.is_set():
        needed["server"] = "it is ending"
    acting = {part: parts[part] for part in READINESS_CHECKS if part not in REQUIRED_PARTS}
    parts = {**needed, **acting}
    if any(needed.values()):
        return make_view_response(Readiness(status="not ready", parts=parts), status=503)
    return Readiness(status="degraded" if any(acting.values()) else "ready", parts=parts)


async def _check_store(app_state: AppStateDependency) -> str | None:
    await app_state.backend.tasks.queues()
    return None


async def _check_archive(app_state: AppStateDependency) -> str | None:
    await app_state.backend.archive.list_workflows(limit=1)
    return None


async def _check_orchestrators(app_state: AppStateDependency) -> str | None:
    partitions = await app_state.partitions.inspect()
    orphaned = [view.partition for view in partitions if view.owner is None or view.is_silent]
    if not orphaned:
        return None
    if len(orphaned) == len(partitions):
        return "no orchestrator is there: nothing is decided"
    return f"{len(orphaned)} of {len(partitions)} partitions have no living orchestrator"


async def _check_workers(app_state: AppStateDependency) -> str | None:
    workers = await app_state.backend.tasks.workers()
    states = {get_worker_state(worker, app_state.settings) for worker in workers}
    return None if WorkerStatus.ALIVE in states else "no worker is there: tasks wait"


REQUIRED_PARTS = ("store", "archive")
READINESS_CHECKS = {
    "store": _check_store,
    "archive": _check_archive,
    "orchestrators": _check_orchestrators,
    "workers": _check_workers,
}


# Numbers for Prometheus.

metrics_routes = ResourceRouter("health")


@metrics_routes.operation(
    "GET",
    "/metrics",
    "Numbers of this process and of the store, as Prometheus reads them",
    scope=Scope.READ,
    others={200: OtherAnswer(content={"text/plain": {"schema": {"type": "string"}}})},
)
async def read_metrics(app_state: AppStateDependency) -> Response:
    await app_state.gauges.refresh()
    return Response(app_state.exposition.render(), media_type=MEDIA_TYPE)
