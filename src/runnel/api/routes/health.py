"""Whether this process lives, and whether it can be given work."""

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from runnel.api.site import OfSite
from runnel.errors import StoreError

router = APIRouter(tags=["health"], prefix="/health")


class Live(BaseModel):
    status: Literal["live"] = "live"


class Ready(BaseModel):
    """`parts` says of each why it is not ready; null when it is."""

    status: Literal["ready", "not ready"]
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
    parts = {"store": await _store_problem(site), "archive": await _archive_problem(site)}
    if site.stopping.is_set():
        parts["server"] = "it is ending"
    is_ready = not any(parts.values())
    if not is_ready:
        response.status_code = 503
    return Ready(status="ready" if is_ready else "not ready", parts=parts)


async def _store_problem(site: OfSite) -> str | None:
    try:
        await site.backend.tasks.queues()
    except StoreError as error:
        return str(error)
    return None


async def _archive_problem(site: OfSite) -> str | None:
    try:
        await site.backend.archive.list_workflows(limit=1)
    except StoreError as error:
        return str(error)
    return None
