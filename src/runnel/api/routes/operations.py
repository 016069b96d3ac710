"""What an operator looks at: workers, queues, concurrency keys and partitions."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path

from runnel.api.answers import problems
from runnel.api.bodies import StrictRoute
from runnel.api.models.operations import (
    Draining,
    LimitPage,
    PartitionList,
    QueueList,
    WorkerAnswer,
    WorkerList,
)
from runnel.api.parameters import After, Limit
from runnel.api.security.callers import needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.core.json_types import Json
from runnel.operations.limits import list_limits
from runnel.operations.queues import lines_of
from runnel.operations.workers import drain_worker, find_worker, list_workers, worker_document

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
