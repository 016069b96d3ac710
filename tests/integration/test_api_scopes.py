"""Every operation of the API, under both names, asks for a scope: the table is checked by calls."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.api.app import PATH_PREFIXES
from runnel.settings.model import Settings
from runnel.views.token import Scope
from tests.api import ApiUnderTest, open_api

UNLIMITED = Settings(requests_per_minute=0, token_requests_per_minute=0)
# Whoever calls a webhook proves who it is to that webhook.
PUBLIC = {"is_live", "is_ready", "call_webhook"}
# What only looks needs 'read'; all else is named here.
CHANGING = {
    "validate_workflow": Scope.READ,
    "submit_workflow": Scope.RUN,
    "store_workflow": Scope.RUN,
    "run_workflow": Scope.RUN,
    "delete_workflow": Scope.OPERATE,
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
LOOKING = {"list_tokens": Scope.ADMIN}


@pytest.fixture
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    """Of a process that is about to end, so that no stream goes on for ever."""
    async with open_api("memory", request, tmp_path, is_open=False, settings=UNLIMITED) as api:
        api.site.stopping.set()
        yield api


def operations(api: ApiUnderTest) -> list[tuple[str, str, str]]:
    """Method, path and name of each, under every prefix."""
    found = []
    for path, methods in api.app.openapi()["paths"].items():
        filled = re.sub(r"\{[^}]*\}", "x", path)
        first, others = PATH_PREFIXES[0], PATH_PREFIXES[1:]
        paths = [filled]
        if filled.startswith(first):
            paths += [each + filled.removeprefix(first) for each in others]
        for method, about in methods.items():
            found += [(method.upper(), each, about["operationId"]) for each in paths]
    return found


async def status(api: ApiUnderTest, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if method in {"POST", "PUT"}:
        return (await api.http.request(method, path, headers=headers, json={})).status_code
    return (await api.http.request(method, path, headers=headers)).status_code


def expected(method: str, name: str) -> Scope:
    """Raises KeyError for an operation that changes something and is not in the table."""
    if method == "GET":
        return LOOKING.get(name, Scope.READ)
    return CHANGING[name]


async def test_nothing_but_health_and_webhooks_is_there_for_callers_without_a_token(
    api: ApiUnderTest,
) -> None:
    answered = {
        name
        for method, path, name in operations(api)
        if await status(api, method, path, None) != 401
    }

    assert answered == PUBLIC


async def test_each_operation_needs_the_scope_of_the_table_and_no_more(api: ApiUnderTest) -> None:
    tokens = {scope: await api.token(scope) for scope in Scope}
    found, table = {}, {}

    for method, path, name in operations(api):
        if name not in PUBLIC:
            allowed = [
                scope
                for scope, token in tokens.items()
                if await status(api, method, path, token) not in {401, 403}
            ]
            found[method, path] = allowed[0]
            table[method, path] = expected(method, name)
            assert allowed == [*Scope][[*Scope].index(allowed[0]) :]

    assert found == table
    assert len(found) > 100


async def test_only_an_operator_says_what_time_it_is(api: ApiUnderTest) -> None:
    running, operating = await api.token(Scope.RUN), await api.token(Scope.OPERATE)
    path, body = "/v1/triggers/cron/dispatch", {"now": "2040-01-01T00:00:00Z"}

    refused = await api.http.post(path, json=body, headers={"Authorization": f"Bearer {running}"})
    done = await api.http.post(path, json=body, headers={"Authorization": f"Bearer {operating}"})

    assert (refused.status_code, done.status_code) == (403, 200)
    assert refused.json()["code"] == "missing_scope"
