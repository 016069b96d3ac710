"""Whether this process lives, and whether it can be given work."""

from asyncio import gather
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from runnel.api.site import OfSite
from runnel.errors import StoreError
from runnel.operations.workers import state_of

# Who asks whether a process is ready does not wait for long.
LOOK_S = 3.0

router = APIRouter(tags=["health"], prefix="/health")


class Live(BaseModel):
    status: Literal["live"] = "live"


class Ready(BaseModel):
    """`parts` says of each why it is not ready; null when it is."""

    status: Literal["ready", "degraded", "not ready"] = Field(
        description="degraded: requests are taken, and nobody acts on them for now"
    )
    parts: dict[str, str | None]


Look: TypeAlias = Callable[[OfSite], Awaitable[str | None]]


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
    looks = (_store, _archive, _orchestrators, _workers)
    store, archive, orchestrators, workers = await gather(*(_told(look, site) for look in looks))
    needed = {"store": store, "archive": archive}
    if site.stopping.is_set():
        needed["server"] = "it is ending"
    acting = {"orchestrators": orchestrators, "workers": workers}
    parts = {**needed, **acting}
    if any(needed.values()):
        response.status_code = 503
        return Ready(status="not ready", parts=parts)
    return Ready(status="degraded" if any(acting.values()) else "ready", parts=parts)


async def _told(look: Look, site: OfSite) -> str | None:
    try:
        return await site.clock.within(LOOK_S, look(site))
    except StoreError as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {LOOK_S:g} s"


async def _store(site: OfSite) -> None:
    await site.backend.tasks.queues()


async def _archive(site: OfSite) -> None:
    await site.backend.archive.list_workflows(limit=1)


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
