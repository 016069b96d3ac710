"""Dead letters over HTTP, the same on every backend."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.client.dead_letters import read_letter_page
from runnel.core.effects import DeadLetter
from runnel.core.ids import ExecutionId, NodeId, Nonce, TaskToken
from runnel.core.retry import ErrorInfo
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.ports.archive import DeadLetterFilter
from runnel.ports.store import Commit
from runnel.views.token import Scope
from tests.api import BOTH, ApiUnderTest, open_api
from tests.waiting import wait_for_value

NONE: dict[str, Any] = {"items": [], "next": None}


def workflow(name: str, queue: str | None = None) -> dict[str, Any]:
    node = {"id": "parse", "handler": "work", "config": {"year": "odd"}}
    return {"name": name, "nodes": [{**node, **({"queue": queue} if queue else {})}]}


@pytest.fixture(params=BOTH)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        yield opened


@pytest.fixture
async def local(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api("sqlite", request, tmp_path) as opened:
        yield opened


async def run_failing(api: ApiUnderTest, document: dict[str, Any], times: int = 1) -> list[str]:
    """Runs failing executions until each has a dead letter; returns their ids, oldest first."""
    await api.post("/v1/workflows", document)
    ids = []
    for _ in range(times):
        api.work.failures["parse"] = [ValueError("no year")]
        execution = await api.post(f"/v1/workflows/{document['name']}/run")
        ids.append(execution["execution_id"])
        assert (await api.wait_for_end(ids[-1]))["status"] == "FAILED"

    async def listed() -> bool | None:
        names = [letter["execution_id"] for letter in (await api.get("/v1/dead-letters"))["items"]]
        return set(ids) <= set(names) or None

    await wait_for_value(listed, every_s=0.02, deadline_s=10.0)
    return ids


async def test_a_dead_letter_is_listed_counted_and_read(api: ApiUnderTest) -> None:
    (execution_id,) = await run_failing(api, workflow("bills"))

    page = await api.get("/v1/dead-letters")
    name = page["items"][0]["name"]
    read = await api.get(f"/v1/dead-letters/{name}")

    assert name == f"{execution_id}/parse"
    assert page["next"] is None
    assert read == {**page["items"][0], "execution_status": "FAILED"}
    assert read["config"] == {"year": "odd"}
    assert read["error"] == "ValueError: no year"
    assert "ValueError" in read["traceback"]
    assert (read["workflow"], read["queue"], read["handler"]) == ("bills", "work", "work")
    assert await api.get("/v1/dead-letters/count") == {"count": 1}


async def test_dead_letters_are_listed_in_pages_and_by_filter(api: ApiUnderTest) -> None:
    bills = await run_failing(api, workflow("bills"), 3)
    (other,) = await run_failing(api, workflow("other"))

    first = await api.get("/v1/dead-letters", params={"limit": 2})
    second = await api.get("/v1/dead-letters", params={"limit": 2, "after": first["next"]})

    pages = [letter["execution_id"] for letter in first["items"] + second["items"]]
    assert pages == [other, *reversed(bills)]
    for params, ids in (
        ({"workflow": "other"}, [other]),
        ({"execution": bills[0]}, bills[:1]),
        ({"queue": "work"}, pages),
        ({"queue": "inbox"}, []),
    ):
        items = (await api.get("/v1/dead-letters", params=params))["items"]
        counted = await api.get("/v1/dead-letters/count", params=params)
        assert [letter["execution_id"] for letter in items] == ids
        assert counted == {"count": len(ids)}


async def test_a_dead_letter_is_retried_with_another_config(api: ApiUnderTest) -> None:
    (execution_id,) = await run_failing(api, workflow("bills"))

    retried = await api.post(
        f"/v1/dead-letters/{execution_id}/parse/retry", {"configs": {"parse": {"year": 2026}}}
    )
    ended = await api.wait_for_end(retried["execution_id"])

    assert retried["rerun_of"] == execution_id
    assert retried["letters"] == [f"{execution_id}/parse"]
    assert (ended["status"], ended["rerun_of"]) == ("COMPLETED", execution_id)
    assert ended["nodes"]["parse"]["output"] == {"year": 2026}
    assert await api.get("/v1/dead-letters") == NONE


async def test_all_dead_letters_of_a_filter_are_retried(api: ApiUnderTest) -> None:
    bills = await run_failing(api, workflow("bills"), 3)
    (other,) = await run_failing(api, workflow("other"))

    first_batch = await api.post("/v1/dead-letters/retry", {"workflow": "bills", "limit": 2})
    second_batch = await api.post("/v1/dead-letters/retry", {"workflow": "bills", "limit": 2})

    reruns = first_batch["retried"] + second_batch["retried"]
    assert [rerun["rerun_of"] for rerun in reruns] == bills
    assert (first_batch["left"], second_batch["left"], first_batch["refused"]) == (1, 0, [])
    for rerun in reruns:
        assert (await api.wait_for_end(rerun["execution_id"]))["status"] == "COMPLETED"
    remaining = (await api.get("/v1/dead-letters"))["items"]
    assert [letter["execution_id"] for letter in remaining] == [other]


async def test_dead_letters_are_purged_by_name_or_by_filter(api: ApiUnderTest) -> None:
    bills = await run_failing(api, workflow("bills"), 2)
    (other,) = await run_failing(api, workflow("other"))

    by_name = await api.call("DELETE", f"/v1/dead-letters/{bills[0]}/parse")
    by_age = await api.post("/v1/dead-letters/purge", {"older_than_s": 3600})
    by_workflow = await api.post("/v1/dead-letters/purge", {"workflow": "bills"})
    of_all = await api.post("/v1/dead-letters/purge", {"all": True})

    assert [answer["purged"] for answer in (by_name, by_age, by_workflow, of_all)] == [1, 0, 1, 1]
    assert await api.get("/v1/dead-letters") == NONE
    assert (await api.get(f"/v1/executions/{other}"))["status"] == "FAILED"


async def test_a_letter_that_can_not_be_retried_does_not_stop_the_others(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    (good,) = await run_failing(local, workflow("bills"))
    await store_letters(tmp_path, [make_letter("gone", 1.0)])

    answer = await local.post("/v1/dead-letters/retry", {"all": True})

    (refused,), (retried,) = answer["refused"], answer["retried"]
    assert (refused["rerun_of"], refused["code"]) == ("gone", "wrong_state")
    assert "its execution was deleted" in refused["message"]
    assert retried["rerun_of"] == good


async def test_pages_contain_every_letter_even_with_equal_timestamps(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    letters = [make_letter(f"e{number}", 5.0 + number // 3) for number in range(9)]
    await store_letters(tmp_path, letters)
    archive, after, execution_ids = local.backend.archive, None, []

    for _ in range(9):
        page, after = await read_letter_page(archive, DeadLetterFilter(limit=2), after=after)
        execution_ids += [letter.token.execution_id for letter in page]
        await archive.delete_dead_letters(page[:1])
        if after is None:
            break

    assert after is None
    assert set(execution_ids) == {letter.token.execution_id for letter in letters}
    assert len(execution_ids) == len(letters)


async def test_a_deleted_page_end_repeats_the_letters_with_its_timestamp(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    letters = [make_letter(name, 5.0) for name in "abc"] + [make_letter("old", 1.0)]
    await store_letters(tmp_path, letters)
    archive = local.backend.archive
    page, after = await read_letter_page(archive, DeadLetterFilter(limit=2), after=None)

    await archive.delete_dead_letters(page[1:])

    remaining, _ = await read_letter_page(archive, DeadLetterFilter(limit=5), after=after)
    assert {letter.token.execution_id for letter in remaining} == {"a", "c", "old"}


@pytest.mark.parametrize(
    ("request_", "body", "status"),
    [
        (("GET", "/v1/dead-letters?after=odd"), None, 422),
        (("GET", "/v1/dead-letters?after=W251bGwsImEiXQ"), None, 422),
        (("GET", "/v1/dead-letters?limit=0"), None, 422),
        (("GET", "/v1/dead-letters/nothing/there"), None, 404),
        (("DELETE", "/v1/dead-letters/nothing/there"), None, 404),
        (("POST", "/v1/dead-letters/nothing/there/retry"), None, 404),
        (("POST", "/v1/dead-letters/retry"), {}, 422),
        (("POST", "/v1/dead-letters/retry"), {"all": True, "queue": "x"}, 422),
        (("POST", "/v1/dead-letters/retry"), {"all": True, "limit": 101}, 422),
        (("POST", "/v1/dead-letters/purge"), {}, 422),
        (("POST", "/v1/dead-letters/purge"), {"all": False}, 422),
        (("POST", "/v1/dead-letters/purge"), {"older_than_s": -1}, 422),
        (("POST", "/v1/dead-letters/purge"), {"every": True}, 422),
    ],
)
async def test_a_bad_request_changes_nothing(
    local: ApiUnderTest, tmp_path: Path, request_: tuple[str, str], body: Any, status: int
) -> None:
    await store_letters(tmp_path, [make_letter("a", 5.0)])

    answer = await local.http.request(*request_, json=body)

    assert answer.status_code == status, answer.text
    assert answer.json()["status"] == status
    assert await local.get("/v1/dead-letters/count") == {"count": 1}


async def test_the_config_of_a_child_can_not_be_changed(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    await store_letters(tmp_path, [make_letter("root.child", 5.0)])

    answer = await local.http.post(
        "/v1/dead-letters/root.child/n/retry", json={"configs": {"n": {}}}
    )

    assert answer.status_code == 422
    assert "child execution" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/dead-letters/retry", "/v1/dead-letters/purge"])
async def test_only_an_operator_may_retry_and_purge(
    request: pytest.FixtureRequest, tmp_path: Path, path: str
) -> None:
    async with open_api("memory", request, tmp_path, is_open=False) as api:
        runner = {"Authorization": f"Bearer {await api.token(Scope.RUN)}"}
        operator = {"Authorization": f"Bearer {await api.token(Scope.OPERATE)}"}

        refused = await api.http.post(path, json={"all": True}, headers=runner)
        allowed = await api.http.post(path, json={"all": True}, headers=operator)
        read = await api.http.get("/v1/dead-letters", headers=runner)

    assert (refused.status_code, allowed.status_code, read.status_code) == (403, 200, 200)


def make_letter(execution_id: str, at: float) -> DeadLetter:
    token = TaskToken(ExecutionId(execution_id), NodeId("n"), -1, 1, Nonce("x"))
    return DeadLetter(
        token=token,
        queue="tasks:work",
        handler="work",
        config=msgspec.Raw(b"{}"),
        error=ErrorInfo(type="ValueError", message="odd"),
        reason="odd",
        rejected_at=at,
        workflow="w",
    )


async def store_letters(folder: Path, letters: list[DeadLetter]) -> None:
    """Stores dead letters as another process with the same data directory does."""
    backend = await SqliteBackend.open(
        folder, clock=RealClock(), ids=RandomIdGenerator(), durability="process"
    )
    try:
        lease = await backend.store.acquire(
            await backend.claim_home_partition("another"), "another"
        )
        commit = Commit(sequence=lease.sequence + 1, dead_letters=letters)
        await backend.store.commit(lease, commit)
    finally:
        await backend.close()
