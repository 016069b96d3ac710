"""Views show large values as previews; whole values are read in chunks, on every backend."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runnel.client.shown_values import LISTED_BYTES_MAX, SHOWN_BYTES_MAX
from runnel.client.whole_values import CHUNK_BYTES
from runnel.core.ids import ExecutionId
from runnel.core.values import INLINE_BYTES_MAX, Json
from runnel.core.workflow import Workflow
from runnel.errors import NotFoundError, WrongStateError
from runnel.views.token import Scope
from tests.api import KINDS, ApiUnderTest, open_api
from tests.core_driver import make_node, make_workflow
from tests.engines import DEADLINE_S, WorkHandler, open_engine

SECRET = "s3cret-value"
INLINE = "ü" * (LISTED_BYTES_MAX // 2)
BLOB = "x" * (INLINE_BYTES_MAX + 1)
LARGEST = "é\n" * SHOWN_BYTES_MAX  # five chunks, which end within a character
INPUT = {"small": [1, None, "a"], "inline": INLINE, "blob": BLOB, "largest": LARGEST}
FLOW = make_workflow(
    make_node("small", config={"v": "{{ input.small }}"}),
    make_node("inline", config={"v": "{{ input.inline }}"}),
    make_node("blob", config={"v": "{{ input.blob }}"}),
    make_node("largest", config={"v": "{{ input.largest }}"}),
    make_node("skipped", config={"v": 1}, condition="input.small[1]"),
    make_node(
        "each",
        "small",
        "inline",
        "largest",
        for_each="input.small",
        config={"v": "{{ input.blob }}", "n": "{{ item }}"},
    ),
    output="{{ largest }}",
)


def encoded_size(value: Json) -> int:
    return len(msgspec.json.encode(value))


@pytest.fixture(params=KINDS)
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with open_api(request.param, request, tmp_path) as opened:
        yield opened


async def run(api: ApiUnderTest, flow: Workflow = FLOW, input_: Json = INPUT) -> ExecutionId:
    execution_id = await api.site.client.submit(flow, input_)
    await api.site.client.wait_for_end(execution_id, timeout_s=DEADLINE_S)
    return execution_id


async def test_a_view_has_small_values_and_previews_of_large_ones(api: ApiUnderTest) -> None:
    id_ = await run(api)

    view = await api.site.client.get(id_)

    assert (view.nodes["small"].output, view.nodes["small"].output_preview) == (
        {"v": INPUT["small"]},
        None,
    )
    for name in ("inline", "blob", "largest"):
        preview = view.nodes[name].output_preview
        assert preview is not None
        assert view.nodes[name].output is None
        assert preview.size == encoded_size({"v": INPUT[name]})
        assert preview.text == msgspec.json.encode({"v": INPUT[name]}).decode()[:200]
        assert preview.url == f"/v1/executions/{id_}/output?node={name}"
    assert view.output is view.input is None
    assert view.output_preview is not None
    assert view.output_preview.url == f"/v1/executions/{id_}/output"
    assert view.input_preview is not None
    assert view.input_preview.url == f"/v1/executions/{id_}/input"


async def test_the_detail_of_a_node_has_previews_of_large_inputs_and_items(
    api: ApiUnderTest,
) -> None:
    id_ = await run(api)

    detail = await api.site.client.node(id_, "each")
    item = await api.site.client.node(id_, "each", item=2)
    blob = await api.site.client.node(id_, "blob")

    assert detail.inputs == {"small": {"v": INPUT["small"]}, "inline": None, "largest": None}
    assert sorted(detail.input_previews) == ["inline", "largest"]
    assert detail.items is not None
    assert [view.output for view in detail.items.items] == [None] * 3
    third = detail.items.items[2].output_preview
    assert third is not None
    assert third.url == f"/v1/executions/{id_}/output?node=each&item=2"
    assert third.size == encoded_size({"v": BLOB, "n": "a"})
    assert item.output == {"v": BLOB, "n": "a"}  # below 1 MB, and the only one
    assert (blob.output, blob.output_preview) == ({"v": BLOB}, None)


async def test_every_preview_names_the_address_of_the_whole_value(api: ApiUnderTest) -> None:
    id_ = await run(api)
    view = await api.get(f"/v1/executions/{id_}")
    page = (await api.get(f"/v1/executions/{id_}/nodes/each"))["items"]["items"]

    for expected, preview in [
        (INPUT, view["input_preview"]),
        ({"v": LARGEST}, view["output_preview"]),
        ({"v": INLINE}, view["nodes"]["inline"]["output_preview"]),
        ({"v": LARGEST}, view["nodes"]["largest"]["output_preview"]),
        ({"v": BLOB, "n": None}, page[1]["output_preview"]),
    ]:
        answer = await api.http.get(preview["url"])
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["content-length"] == str(preview["size"])
        assert answer.json() == expected


async def test_whole_values_are_read_in_chunks_of_bounded_size(api: ApiUnderTest) -> None:
    id_, values = await run(api), api.site.client.values

    chunks = [chunk async for chunk in values.stream_output(id_, "largest")]
    whole = [
        await values.output(id_),
        await values.output(id_, "small"),
        await values.output(id_, "each", item=0),
        await values.input(id_),
    ]

    assert len(chunks) == 5
    assert max(map(len, chunks)) == CHUNK_BYTES
    assert msgspec.json.decode(b"".join(chunks)) == {"v": LARGEST}
    assert whole == [{"v": LARGEST}, {"v": INPUT["small"]}, {"v": BLOB, "n": 1}, INPUT]


async def test_a_map_and_its_reused_items_have_whole_outputs(api: ApiUnderTest) -> None:
    api.work.failures["each"] = [None, ValueError("no")]
    node = make_node("each", for_each="input.all", config={"v": "{{ input.blob }}"})
    flow = make_workflow(node, max_concurrency=1)
    former = await run(api, flow, {"all": [1, 2], "blob": BLOB})
    rerun = await api.site.client.rerun(former)
    await api.site.client.wait_for_end(rerun, timeout_s=DEADLINE_S)
    values = api.site.client.values

    assert len(api.work.calls) == 3
    assert await values.output(rerun, "each") == [{"v": BLOB}] * 2
    items = [await values.output(rerun, "each", item=item) for item in range(2)]
    assert items == [{"v": BLOB}] * 2


WRONG_REQUESTS: list[tuple[dict[str, Any], int, str]] = [
    ({"node": "smal"}, 404, "no node 'smal'; did you mean 'small'?"),
    ({"node": "each", "item": 3}, 404, "no item 'each[3]'; the map has 3 items"),
    ({"node": "small", "item": 0}, 404, "no item 'small[0]'; the node is not a map"),
    ({"node": "skipped"}, 409, "node 'skipped' of execution … is SKIPPED: it has no output"),
    ({"item": 0}, 422, "item: name the node as well: 'node=each&item=1'"),
]


async def test_a_wrong_request_for_an_output_is_refused(api: ApiUnderTest) -> None:
    id_ = await run(api)
    path = f"/v1/executions/{id_}/output"

    answers = [await api.http.get(path, params=query) for query, _, _ in WRONG_REQUESTS]
    negative = await api.http.get(path, params={"node": "each", "item": -1})

    assert [
        (answer.status_code, answer.json()["detail"].replace(id_, "…")) for answer in answers
    ] == [(status, sentence) for _, status, sentence in WRONG_REQUESTS]
    assert negative.status_code == 422


async def test_an_output_that_does_not_exist_yet_is_refused(api: ApiUnderTest) -> None:
    api.work.gate("a")
    flow = make_workflow(
        make_node("a", config={"v": 1}),
        make_node("each", for_each="input.all", config={"v": "{{ item }}"}),
        make_node("b", "a", config={"v": 2}),
    )
    id_ = await api.site.client.submit(flow, {"all": [1]})
    await api.work.entered["a"].wait()
    values = api.site.client.values

    for node, sentence in [
        (None, f"execution {id_} is RUNNING: it has no output yet"),
        ("b", f"node 'b' of execution {id_} is PENDING: it has no output yet"),
    ]:
        with pytest.raises(WrongStateError) as refused:
            await values.output(id_, node)
        assert str(refused.value) == sentence
    with pytest.raises(NotFoundError):
        await values.output(ExecutionId("01nothing"))
    with pytest.raises(NotFoundError):
        await values.input(ExecutionId("01nothing"))
    assert await values.input(id_) == {"all": [1]}
    api.work.gates["a"].set()


async def test_a_failed_execution_and_a_failed_item_have_no_output(api: ApiUnderTest) -> None:
    api.work.failures["each"] = [ValueError("no")]
    flow = make_workflow(make_node("each", for_each="input.all", config={"v": "{{ item }}"}))
    id_ = await run(api, flow, {"all": [1]})
    values = api.site.client.values

    with pytest.raises(WrongStateError, match=r"is FAILED: it has no output$"):
        await values.output(id_)
    with pytest.raises(WrongStateError, match=r"item each\[0\] of .* has not completed"):
        await values.output(id_, "each", item=0)


async def test_a_deleted_value_is_not_found(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    async with open_api("sqlite", request, tmp_path) as api:
        id_ = await run(api)
        chunks = api.site.client.values.stream_output(id_, "largest")
        await anext(chunks)
        await api.backend.blobs.delete(f"{id_}/")

        with pytest.raises(NotFoundError):
            await anext(chunks)
        answers = [
            await api.http.get(f"/v1/executions/{id_}"),
            await api.http.get(f"/v1/executions/{id_}/output?node=largest"),
        ]

    assert [answer.status_code for answer in answers] == [404, 404]


async def test_a_value_needs_a_token_as_other_reads_do(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("sqlite", request, tmp_path, is_open=False) as api:
        id_ = await run(api)
        paths = [f"/v1/executions/{id_}/output", f"/v1/executions/{id_}/input"]
        bearer = {"Authorization": f"Bearer {await api.token(Scope.READ)}"}

        refused = [(await api.http.get(path)).status_code for path in paths]
        sent = [(await api.http.get(path, headers=bearer)).status_code for path in paths]

    assert (refused, sent) == ([401, 401], [200, 200])


async def test_the_description_of_the_api_has_previews_and_whole_values(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with open_api("memory", request, tmp_path) as api:
        description = api.app.openapi()

    schemas, paths = description["components"]["schemas"], description["paths"]
    assert sorted(schemas["ValuePreview"]["properties"]) == ["size", "text", "url"]
    for view in ("ExecutionView", "NodeView", "NodeDetail", "ItemView"):
        assert "output_preview" in schemas[view]["required"]
    output = paths["/v1/executions/{execution_id}/output"]["get"]
    assert [parameter["name"] for parameter in output["parameters"]] == [
        *("execution_id", "node", "item")
    ]
    assert {"200", "404", "409", "422"} <= output["responses"].keys()
    assert output["responses"]["200"]["content"] == {"application/json": {"schema": {}}}
    assert "/v1/executions/{execution_id}/input" in paths


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_secret_is_masked_in_the_preview_and_in_the_whole_value(
    kind: str, tmp_path: Path
) -> None:
    config = {"v": "{{ secrets.token }}", "more": "{{ input.largest }}", "z": "{{ secrets.token }}"}
    flow = make_workflow(make_node("a", config=config))
    async with open_engine(kind, tmp_path, WorkHandler(), secrets={"token": SECRET}) as engine:
        id_ = await engine.client.submit(flow, {"largest": LARGEST})
        await engine.client.wait_for_end(id_, timeout_s=DEADLINE_S)
        view = await engine.client.get(id_)
        chunks = [chunk async for chunk in engine.client.values.stream_output(id_, "a")]

    assert view.nodes["a"].output_preview is not None
    assert SECRET not in view.nodes["a"].output_preview.text
    assert SECRET.encode() not in b"".join(chunks)
    assert msgspec.json.decode(b"".join(chunks)) == {"v": "***", "more": LARGEST, "z": "***"}


def test_the_text_of_a_view_is_short(api_view: Any) -> None:
    assert len(repr(api_view)) < 2_000


@pytest.fixture
async def api_view(tmp_path: Path) -> Any:
    nodes = [make_node(f"n{number}", config={"v": INLINE[:30_000]}) for number in range(10)]
    async with open_engine("memory", tmp_path, WorkHandler()) as engine:
        id_ = await engine.client.submit(make_workflow(*nodes), None)
        return await engine.client.wait(id_, timeout_s=DEADLINE_S)
