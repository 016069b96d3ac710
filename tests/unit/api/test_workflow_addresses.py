"""The addresses of a workflow in the API."""

from fastapi.routing import APIRoute

from runnel.api.routes import triggers, workflows
from runnel.core.validation.checks import RESERVED_NAME_ENDS

NAMED = "/v1/workflows/{name:path}"


def test_no_workflow_can_be_named_like_an_address_below_a_workflow() -> None:
    routers = (workflows.routes, triggers.webhook_routes)
    routes = [route for router in routers for route in router.api_router.routes]
    paths = {route.path for route in routes if isinstance(route, APIRoute)}

    ends = {path.removeprefix(NAMED) for path in paths if path.startswith(f"{NAMED}/")}

    assert ends == set(RESERVED_NAME_ENDS)
