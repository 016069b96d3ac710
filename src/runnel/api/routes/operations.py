"""Routes for operators: workers, queues, concurrency keys, partitions, health and metrics."""

from asyncio import gather
from functools import partial
from typing import Annotated

from fastapi import Path, Response

from runnel.api.requests import AfterParam, LimitParam
from runnel.api.resource_router import OtherAnswer, ResourceRouter
from runnel.api.responses import make_view_response
from runnel.api.state import AppStateDependency
from runnel.client.operations import get_worker_state, list_concurrency_keys
from runnel.telemetry.prometheus import MEDIA_TYPE
from runnel.views.operations import (
    ConcurrencyKeyView,
    DrainingWorker,
    Liveness,
    PartitionView,
    QueueView,
    Readiness,
    WorkerView,
)
from runnel.views.page import Listing, Page
from runnel.views.token import Scope

routes = ResourceRouter("operations")

WorkerNameParam = Annotated[
    str, Path(description="A name from the list of workers", max_length=500)
]


@routes.operation(
    "GET /workers", Scope.READ, "List the workers: state, queues, and the tasks that each one runs"
)
async def list_workers(app_state: AppStateDependency) -> Listing[WorkerView]:
    return Listing(items=await app_state.operations.workers())


@routes.operation("GET /workers/{name}", Scope.READ, "Get one worker", 404)
async def read_worker(name: WorkerNameParam, app_state: AppStateDependency) -> WorkerView:
    return await app_state.operations.worker(name)


@routes.operation(
    "POST /workers/{name}/drain",
    Scope.OPERATE,
    "Drain a worker: it finishes its tasks, and its process ends",
    404,
    409,
    status=202,
)
async def drain_worker(name: WorkerNameParam, app_state: AppStateDependency) -> DrainingWorker:
    await app_state.operations.drain(name)
    return DrainingWorker(worker=name)


@routes.operation(
    "GET /queues", Scope.READ, "List the queues: waiting tasks, age of the oldest, workers, problem"
)
async def list_queues(app_state: AppStateDependency) -> Listing[QueueView]:
    return Listing(items=await app_state.operations.queues())


@routes.operation(
    "GET /limits", Scope.READ, "List the concurrency keys that tasks hold or wait for, by key"
)
async def list_limits(
    app_state: AppStateDependency, limit: LimitParam = 50, after: AfterParam = None
) -> Page[ConcurrencyKeyView]:
    keys = await list_concurrency_keys(app_state.backend.store, after=after or "", limit=limit)
    return Page(items=keys, next=keys[-1].key if len(keys) == limit else None)


@routes.operation(
    "GET /partitions", Scope.READ, "List the partitions: owner, unread and unarchived work"
)
async def list_partitions(app_state: AppStateDependency) -> Listing[PartitionView]:
    return Listing(items=await app_state.operations.partitions())


# Liveness and readiness of this process.

health_routes = ResourceRouter(
    "health", prefix="/health", is_versioned=False, describes_problems=False
)


@health_routes.operation("GET /live", None, "Check that this process answers")
async def is_live() -> Liveness:
    return Liveness()


@health_routes.operation(
    "GET /ready",
    None,
    "Check that this process can reach every part that a request needs",
    other_answers={503: OtherAnswer("One of the parts can't be reached", view=Readiness)},
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
        needed["server"] = "it is shutting down"
    optional = {part: parts[part] for part in READINESS_CHECKS if part not in REQUIRED_PARTS}
    parts = {**needed, **optional}
    if any(needed.values()):
        return make_view_response(Readiness(status="not ready", parts=parts), status=503)
    return Readiness(status="degraded" if any(optional.values()) else "ready", parts=parts)


async def _check_store(app_state: AppStateDependency) -> str | None:
    await app_state.backend.tasks.queues()
    return None


async def _check_archive(app_state: AppStateDependency) -> str | None:
    await app_state.backend.archive.list_workflows(limit=1)
    return None


async def _check_orchestrators(app_state: AppStateDependency) -> str | None:
    partitions = await app_state.operations.partitions()
    orphaned = [view.partition for view in partitions if view.owner is None or view.is_silent]
    if not orphaned:
        return None
    if len(orphaned) == len(partitions):
        return "no orchestrator is alive: no execution makes progress"
    return f"{len(orphaned)} of {len(partitions)} partitions have no living orchestrator"


async def _check_workers(app_state: AppStateDependency) -> str | None:
    workers = await app_state.backend.tasks.workers()
    states = {get_worker_state(worker, app_state.settings) for worker in workers}
    return None if "alive" in states else "no worker is alive: tasks wait"


REQUIRED_PARTS = ("store", "archive")
READINESS_CHECKS = {
    "store": _check_store,
    "archive": _check_archive,
    "orchestrators": _check_orchestrators,
    "workers": _check_workers,
}


# Metrics for Prometheus.

metrics_routes = ResourceRouter("health", is_versioned=False)


@metrics_routes.operation(
    "GET /metrics",
    Scope.READ,
    "Get the metrics of this process and of the store in the Prometheus format",
    other_answers={200: OtherAnswer(content={"text/plain": {"schema": {"type": "string"}}})},
)
async def read_metrics(app_state: AppStateDependency) -> Response:
    await app_state.gauges.refresh()
    return Response(app_state.exposition.render(), media_type=MEDIA_TYPE)
