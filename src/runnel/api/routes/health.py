"""Whether this process lives, and whether it can be given work."""

from asyncio import gather
from functools import partial
from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from runnel.api.site import OfSite
from runnel.operations.workers import state_of

router = APIRouter(tags=["health"], prefix="/health")


class Live(BaseModel):
    status: Literal["live"] = "live"


class Ready(BaseModel):
    """`parts` says of each why it is not ready; null when it is."""

    status: Literal["ready", "degraded", "not ready"] = Field(
        description="degraded: requests are taken, and nobody acts on them for now"
    )
    parts: dict[str, str | None]


@router.get("/live", operation_id="is_live", summary="This process answers")
async def live() -> Live:
    return Live()


@router.get(
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
