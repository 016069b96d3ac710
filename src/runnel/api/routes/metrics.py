"""Numbers for Prometheus."""

from fastapi import APIRouter, Response

from runnel.api.answers import problems
from runnel.api.security.callers import needs
from runnel.api.security.scopes import Scope
from runnel.api.site import OfSite
from runnel.telemetry.exposition import MEDIA_TYPE

router = APIRouter(tags=["health"])


@router.get(
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
