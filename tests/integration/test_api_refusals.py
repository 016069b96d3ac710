"""Each refused request gets the right status and body, and changes nothing in the store."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runnel.ports.archive import ExecutionFilter
from tests.api import ApiUnderTest, open_api
from tests.integration.refusals.bodies import BODIES
from tests.integration.refusals.documents import DOCUMENTS
from tests.integration.refusals.executions import EXECUTIONS
from tests.integration.refusals.lists import LISTS
from tests.integration.refusals.refused_request import RefusedRequest
from tests.integration.refusals.runs import RUNS
from tests.integration.refusals.strict import STRICT

WAITING = {
    "name": "waiting",
    "nodes": [{"id": "ask", "handler": "wait_for_signal", "config": {"signal": "go"}}],
}
CHECKED = {
    "name": "checked",
    "input": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
    "nodes": [{"id": "one", "handler": "output", "config": {"x": 1}}],
}
REFUSED = [*BODIES, *DOCUMENTS, *RUNS, *STRICT, *EXECUTIONS, *LISTS]
ALL = ExecutionFilter(with_children=True, limit=100)
DONE = {"name": "done", "nodes": [{"id": "one", "handler": "work", "config": {"x": 1}}]}


@dataclass
class ApiWithExecutions:
    """An API on a store that holds one execution of each kind."""

    api: ApiUnderTest
    ids: dict[str, str]

    async def read_state(self) -> Any:
        """Returns all stored state that a refused request could have changed."""
        archive, records = self.api.backend.archive, self.api.backend.records
        pages = await archive.list_headers(ALL)
        return {
            "executions": [(header.execution_id, header.state, header.labels) for header in pages],
            "histories": [len(await archive.load(header.execution_id)) for header in pages],
            "workflows": [
                (workflow.name, workflow.version) for workflow in await archive.list_workflows()
            ],
            "records": [len(await records.list(kind)) for kind in ("token", "schedule")],
        }


@pytest_asyncio.fixture(scope="module", params=["sqlite", "archived"], loop_scope="module")
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiWithExecutions]:
    folder: Path = tmp_path_factory.mktemp("refusals")
    async with open_api(request.param, request, folder) as api:
        for document in (WAITING, CHECKED, DONE):
            await api.post("/v1/workflows", document)
        used = {"Idempotency-Key": "used"}
        waits = await api.post("/v1/workflows/waiting/run", {}, headers=used)
        held = await api.post("/v1/workflow", CHECKED)
        finished = await api.post("/v1/workflows/done/run")
        ids = {
            "open": waits["execution_id"],
            "held": held["execution_id"],
            "done": finished["execution_id"],
        }
        await api.wait_for_end(ids["done"])
        yield ApiWithExecutions(api, ids)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("refused", REFUSED, ids=lambda refused: refused.name)
async def test_a_refused_request_changes_nothing(
    stage: ApiWithExecutions, refused: RefusedRequest
) -> None:
    before = await stage.read_state()
    headers = dict(refused.headers)
    sent: dict[str, Any] = {"params": refused.params}
    if refused.body is not None:
        sent["json"] = refused.body
    elif refused.raw is not None:
        sent["content"] = refused.raw
        headers |= {"Content-Type": refused.kind} if refused.kind else {}
    path = refused.path.format(**stage.ids) if "{" in refused.path else refused.path

    answer = await stage.api.http.request(refused.method, path, headers=headers, **sent)

    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (refused.status, refused.code), problem[
        "detail"
    ]
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["type"]) == (
        refused.status,
        f"urn:runnel:error:{refused.code}",
    )
    assert refused.says in problem["detail"]
    assert await stage.read_state() == before


def test_the_refused_requests_are_many_and_have_unique_names() -> None:
    names = [refused.name for refused in REFUSED]

    assert len(set(names)) == len(names) >= 80
