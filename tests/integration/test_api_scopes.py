"""Every operation of the API requires a scope, under each path prefix. Calls check the table."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.api.resource_router import PATH_PREFIXES
from runnel.settings.model import Settings
from runnel.views.token import Scope
from tests.api import ApiUnderTest, open_api

UNLIMITED = Settings(requests_per_minute=0, token_requests_per_minute=0)
# A webhook checks its callers itself.
PUBLIC = {"is_live", "is_ready", "call_webhook"}
# Operations that only read need 'read'. All others are listed here.
CHANGING = {
    "validate_workflow": Scope.READ,
    "submit_workflow": Scope.RUN,
    "store_workflow": Scope.RUN,
    "run_workflow": Scope.RUN,
    "run_batch": Scope.RUN,
    "delete_workflow": Scope.OPERATE,
    "activate_version": Scope.OPERATE,
    "read_active_version": Scope.READ,
    "trigger_execution": Scope.RUN,
    "cancel_execution": Scope.RUN,
    "signal_execution": Scope.RUN,
    "rerun_execution": Scope.RUN,
    "cancel_executions": Scope.OPERATE,
    "rerun_executions": Scope.OPERATE,
    "retry_dead_letter": Scope.OPERATE,
    "retry_dead_letters": Scope.OPERATE,
    "purge_dead_letter": Scope.OPERATE,
    "purge_dead_letters": Scope.OPERATE,
    "add_schedule": Scope.OPERATE,
    "replace_schedule": Scope.OPERATE,
    "pause_schedule": Scope.OPERATE,
    "resume_schedule": Scope.OPERATE,
    "remove_schedule": Scope.OPERATE,
    "dispatch_schedules": Scope.RUN,
    "put_webhook": Scope.OPERATE,
    "remove_webhook": Scope.OPERATE,
    "drain_worker": Scope.OPERATE,
    "create_token": Scope.ADMIN,
    "revoke_token": Scope.ADMIN,
}
READING = {"list_tokens": Scope.ADMIN}


@pytest.fixture
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    """Opens an API that is stopping, so that every stream ends."""
    async with open_api("memory", request, tmp_path, is_open=False, settings=UNLIMITED) as api:
        api.site.stopping.set()
        yield api


def list_operations(api: ApiUnderTest) -> list[tuple[str, str, str]]:
    """Returns the method, path and name of each operation, under every prefix."""
    operations = []
    for path, methods in api.app.openapi()["paths"].items():
        filled = re.sub(r"\{[^}]*\}", "x", path)
        first, other_prefixes = PATH_PREFIXES[0], PATH_PREFIXES[1:]
        paths = [filled]
        if filled.startswith(first):
            paths += [prefix + filled.removeprefix(first) for prefix in other_prefixes]
        for method, about in methods.items():
            operations += [(method.upper(), call_path, about["operationId"]) for call_path in paths]
    return operations


async def call_status(api: ApiUnderTest, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if method in {"POST", "PUT"}:
        return (await api.http.request(method, path, headers=headers, json={})).status_code
    return (await api.http.request(method, path, headers=headers)).status_code


def expected_scope(method: str, name: str) -> Scope:
    """Returns the scope, or raises KeyError for a writing operation that is not in the table."""
    if method == "GET":
        return READING.get(name, Scope.READ)
    return CHANGING[name]


async def test_only_health_and_webhooks_answer_callers_without_a_token(
    api: ApiUnderTest,
) -> None:
    answered = {
        name
        for method, path, name in list_operations(api)
        if await call_status(api, method, path, None) != 401
    }

    assert answered == PUBLIC


async def test_each_operation_needs_exactly_the_scope_of_the_table(api: ApiUnderTest) -> None:
    tokens = {scope: await api.token(scope) for scope in Scope}
    needed, table = {}, {}

    for method, path, name in list_operations(api):
        if name not in PUBLIC:
            allowed = [
                scope
                for scope, token in tokens.items()
                if await call_status(api, method, path, token) not in {401, 403}
            ]
            needed[method, path] = allowed[0]
            table[method, path] = expected_scope(method, name)
            assert allowed == [*Scope][[*Scope].index(allowed[0]) :]

    assert needed == table
    assert len(needed) > 100


async def test_only_an_operator_may_set_the_time_of_a_dispatch(api: ApiUnderTest) -> None:
    running, operating = await api.token(Scope.RUN), await api.token(Scope.OPERATE)
    path, body = "/v1/triggers/cron/dispatch", {"now": "2040-01-01T00:00:00Z"}

    refused = await api.http.post(path, json=body, headers={"Authorization": f"Bearer {running}"})
    done = await api.http.post(path, json=body, headers={"Authorization": f"Bearer {operating}"})

    assert (refused.status_code, done.status_code) == (403, 200)
    assert refused.json()["code"] == "missing_scope"
