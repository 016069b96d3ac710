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


async def failed(api: ApiUnderTest, document: dict[str, Any], times: int = 1) -> list[str]:
    """The ids of executions that have left a dead letter each, the oldest first."""
    await api.post("/v1/workflows", document)
    ids = []
    for _ in range(times):
        api.work.failures["parse"] = [ValueError("no year")]
        begun = await api.post(f"/v1/workflows/{document['name']}/run")
        ids.append(begun["execution_id"])
        assert (await api.ended(ids[-1]))["status"] == "FAILED"

    async def listed() -> bool | None:
        names = [each["execution_id"] for each in (await api.get("/v1/dead-letters"))["items"]]
        return set(ids) <= set(names) or None

    await wait_for_value(listed, every_s=0.02, deadline_s=10.0)
    return ids


async def test_a_dead_letter_is_listed_counted_and_read(api: ApiUnderTest) -> None:
    (execution_id,) = await failed(api, workflow("bills"))

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


async def test_dead_letters_come_in_pages_and_by_filter(api: ApiUnderTest) -> None:
    bills = await failed(api, workflow("bills"), 3)
    (other,) = await failed(api, workflow("other"))

    first = await api.get("/v1/dead-letters", params={"limit": 2})
    rest = await api.get("/v1/dead-letters", params={"limit": 2, "after": first["next"]})

    pages = [each["execution_id"] for each in first["items"] + rest["items"]]
    assert pages == [other, *reversed(bills)]
    for given, ids in (
        ({"workflow": "other"}, [other]),
        ({"execution": bills[0]}, bills[:1]),
        ({"queue": "work"}, pages),
        ({"queue": "inbox"}, []),
    ):
        items = (await api.get("/v1/dead-letters", params=given))["items"]
        counted = await api.get("/v1/dead-letters/count", params=given)
        assert [each["execution_id"] for each in items] == ids
        assert counted == {"count": len(ids)}


async def test_a_dead_letter_is_retried_with_another_config(api: ApiUnderTest) -> None:
    (execution_id,) = await failed(api, workflow("bills"))

    retried = await api.post(
        f"/v1/dead-letters/{execution_id}/parse/retry", {"configs": {"parse": {"year": 2026}}}
    )
    ended = await api.ended(retried["execution_id"])

    assert retried["rerun_of"] == execution_id
    assert retried["letters"] == [f"{execution_id}/parse"]
    assert (ended["status"], ended["rerun_of"]) == ("COMPLETED", execution_id)
    assert ended["nodes"]["parse"]["output"] == {"year": 2026}
    assert await api.get("/v1/dead-letters") == NONE


async def test_all_dead_letters_of_a_filter_are_retried(api: ApiUnderTest) -> None:
    bills = await failed(api, workflow("bills"), 3)
    (other,) = await failed(api, workflow("other"))

    some = await api.post("/v1/dead-letters/retry", {"workflow": "bills", "limit": 2})
    more = await api.post("/v1/dead-letters/retry", {"workflow": "bills", "limit": 2})

    both = some["retried"] + more["retried"]
    assert [each["rerun_of"] for each in both] == bills
    assert (some["left"], more["left"], some["refused"]) == (1, 0, [])
    for each in both:
        assert (await api.ended(each["execution_id"]))["status"] == "COMPLETED"
    left = (await api.get("/v1/dead-letters"))["items"]
    assert [each["execution_id"] for each in left] == [other]


async def test_dead_letters_are_purged_one_by_one_or_by_filter(api: ApiUnderTest) -> None:
    bills = await failed(api, workflow("bills"), 2)
    (other,) = await failed(api, workflow("other"))

    one = await api.call("DELETE", f"/v1/dead-letters/{bills[0]}/parse")
    none = await api.post("/v1/dead-letters/purge", {"older_than_s": 3600})
    some = await api.post("/v1/dead-letters/purge", {"workflow": "bills"})
    rest = await api.post("/v1/dead-letters/purge", {"all": True})

    assert [each["purged"] for each in (one, none, some, rest)] == [1, 0, 1, 1]
    assert await api.get("/v1/dead-letters") == NONE
    assert (await api.get(f"/v1/executions/{other}"))["status"] == "FAILED"


async def test_one_of_several_that_can_not_be_retried_is_refused_and_the_others_are(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    (good,) = await failed(local, workflow("bills"))
    await put(tmp_path, [letter("gone", 1.0)])

    answer = await local.post("/v1/dead-letters/retry", {"all": True})

    (refused,), (retried,) = answer["refused"], answer["retried"]
    assert (refused["rerun_of"], refused["code"]) == ("gone", "wrong_state")
    assert "its execution was deleted" in refused["message"]
    assert retried["rerun_of"] == good


async def test_no_page_misses_a_letter_of_the_same_moment(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    letters = [letter(f"e{number}", 5.0 + number // 3) for number in range(9)]
    await put(tmp_path, letters)
    archive, after, seen = local.backend.archive, None, []

    for _ in range(9):
        page, after = await read_letter_page(archive, DeadLetterFilter(limit=2), after=after)
        seen += [each.token.execution_id for each in page]
        await archive.delete_dead_letters(page[:1])
        if after is None:
            break

    assert after is None
    assert set(seen) == {each.token.execution_id for each in letters}
    assert len(seen) == len(letters)


async def test_when_the_last_letter_of_a_page_is_gone_those_of_its_moment_come_again(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    letters = [letter(name, 5.0) for name in "abc"] + [letter("old", 1.0)]
    await put(tmp_path, letters)
    archive = local.backend.archive
    page, after = await read_letter_page(archive, DeadLetterFilter(limit=2), after=None)

    await archive.delete_dead_letters(page[1:])

    rest, _ = await read_letter_page(archive, DeadLetterFilter(limit=5), after=after)
    assert {each.token.execution_id for each in rest} == {"a", "c", "old"}


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
    await put(tmp_path, [letter("a", 5.0)])

    answer = await local.http.request(*request_, json=body)

    assert answer.status_code == status, answer.text
    assert answer.json()["status"] == status
    assert await local.get("/v1/dead-letters/count") == {"count": 1}


async def test_the_config_of_a_child_can_not_be_changed(
    local: ApiUnderTest, tmp_path: Path
) -> None:
    await put(tmp_path, [letter("root.child", 5.0)])

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


def letter(execution_id: str, at: float) -> DeadLetter:
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


async def put(folder: Path, letters: list[DeadLetter]) -> None:
    """As another process that uses the data directory leaves them."""
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
