"""Large values from the command line and over HTTP: previews, whole values, and their cost."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runnel import Client, SyncClient
from runnel.bench.machine import read_peak_mb
from runnel.errors import NotFoundError, WrongStateError
from tests.e2e.dev_server import DevServer, dev_server
from tests.e2e.store_and_server import StoreAndServer

pytestmark = pytest.mark.e2e

FLOW = """
import runnel

@runnel.task
def fill(n: int, mb: int) -> list[str]:
    return [f"é{n}" * 25_000] * (10 * mb)

@runnel.task
def count(text: str) -> int:
    return len(text)

@runnel.task
def leak(token: str) -> dict[str, str]:
    return {"begin": token, "more": "x" * 2_000_000, "end": token}

@runnel.workflow
def one(mb: int = 2) -> list[str]:
    return fill(0, mb)

@runnel.workflow
def many(mb: int = 2) -> int:
    filled = [fill(n, mb) for n in range(20)]
    return count.after(*filled)("done")

@runnel.workflow
def each(all: list[int]) -> list[list[str]]:
    return fill.map(all, mb=2)

@runnel.workflow
def secretive() -> dict[str, str]:
    return leak(runnel.secret("token"))

@runnel.workflow
def echo(text: str, n: int = 0) -> int:
    return count(text)

@runnel.workflow
def partly(n: int = 0) -> int:
    first = fill(n, 1)
    return count.when(n > 0)("never")
"""
SECRET = "s3cret-value"
TEXT_BYTES = 2_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "flows.py").write_text(FLOW)
    with dev_server(
        folder, RUNNEL_SECRET_TOKEN=SECRET, RUNNEL_API_RATE_LIMIT="0", RETRY_MAX_RETRIES="0"
    ) as running:
        yield running


@pytest.fixture
def commands(server: DevServer, capfd: pytest.CaptureFixture[str]) -> StoreAndServer:
    store = ("--data-dir", str(server.program.folder / ".runnel"))
    return StoreAndServer(store, server.url, capfd)


def flow(server: DevServer, name: str) -> Path:
    return server.program.folder / f"flows.py:{name}"


def filled(n: int, mb: int = 2) -> list[str]:
    return [f"é{n}" * 25_000] * (10 * mb)


async def test_run_returns_the_whole_result_and_get_a_preview(server: DevServer) -> None:
    async with Client(server.url) as client:
        done = await client.run(flow(server, "one"))
        view = await client.get(done.execution_id)
        waited = await client.wait(done.execution_id)
        whole = await client.values.output(done.execution_id)
        chunks = [chunk async for chunk in client.values.stream_output(done.execution_id, "fill")]

    assert (done.output, done.output_preview) == (filled(0), None)
    assert view.output is None
    assert view.output_preview is not None
    assert view.output_preview.text.startswith('["é0é0é0')
    assert view.output_preview.size == len(b"".join(chunks))
    assert waited == view
    assert whole == json.loads(b"".join(chunks)) == filled(0)
    assert len(chunks) > 1


async def test_results_of_a_batch_are_whole(server: DevServer) -> None:
    async with Client(server.url) as client:
        results = [result async for result in client.run_many(flow(server, "one"), [{"mb": 2}])]

    assert [result.output for result in results] == [filled(0)]


def test_the_blocking_client_reads_whole_values(server: DevServer) -> None:
    with SyncClient(server.url) as client:
        execution_id = client.run(flow(server, "each"), {"all": [3, 4]}).execution_id
        item = client.values.output(execution_id, "fill", item=1)
        chunks = list(client.values.stream_output(execution_id, "fill", item=0))
        input_ = client.values.input(execution_id)
        with pytest.raises(NotFoundError, match="the map has 2 items"):
            client.values.output(execution_id, "fill", item=2)
        with pytest.raises(NotFoundError, match="no node 'fil'"):
            list(client.values.stream_output(execution_id, "fil"))

    assert item == filled(4)
    assert json.loads(b"".join(chunks)) == filled(3)
    assert input_ == {"all": [3, 4]}


def test_commands_show_previews_and_print_whole_values(
    server: DevServer, commands: StoreAndServer
) -> None:
    with SyncClient(server.url) as client:
        text = "ü" * TEXT_BYTES
        execution_id = client.run(flow(server, "echo"), {"text": text}).execution_id
        large_id = client.run(flow(server, "each"), {"all": [5, 6]}).execution_id

    shown = commands.check_same("show", execution_id).out
    whole_input = commands.check_same("show", execution_id, "--input").out
    large = commands.check_same("show", large_id)
    node = commands.check_same("show", large_id, "--node", "fill")
    item = commands.check_same("show", large_id, "--node", "fill[1]", "--output")
    output = commands.check_same("show", large_id, "--output")

    size = len(
        json.dumps({"text": text, "n": 0}, ensure_ascii=False, separators=(",", ":")).encode()
    )
    assert f"… ({size:,} bytes); --input prints all of it" in shown
    assert json.loads(whole_input) == {"text": text, "n": 0}
    assert "bytes); --output prints all of it" in large.out
    assert 'items [["é5é5é5é5' in large.out
    assert len(large.out) + len(node.out) < 5_000
    assert json.loads(item.out) == filled(6)
    assert json.loads(output.out) == [filled(5), filled(6)]


def test_a_run_prints_its_whole_result(server: DevServer, commands: StoreAndServer) -> None:
    file = str(flow(server, "one"))

    plain = commands.on_server("run", file)
    document = commands.on_server("run", file, "--json")

    assert json.loads(plain.out) == filled(0)
    assert json.loads(document.out)["output"] == filled(0)


def test_a_rerun_changes_one_value_of_a_large_input(
    server: DevServer, commands: StoreAndServer
) -> None:
    with SyncClient(server.url) as client:
        text = "x" * TEXT_BYTES
        former = client.run(flow(server, "echo"), {"text": text}).execution_id

        rerun = commands.on_server("rerun", former, "--input", "n=2", "--json")

        assert rerun.code == 0, rerun.err
        input_ = client.values.input(json.loads(rerun.out)["execution_id"])
    assert input_ == {"text": text, "n": 2}


def test_a_node_without_an_output_is_named(server: DevServer, commands: StoreAndServer) -> None:
    with SyncClient(server.url) as client:
        execution_id = client.run(flow(server, "partly")).execution_id
        with pytest.raises(WrongStateError, match="is SKIPPED: it has no output"):
            client.values.output(execution_id, "count")

    skipped = commands.check_same("show", execution_id, "--node", "count", "--output")
    unknown = commands.check_same("show", execution_id, "--node", "cont", "--output")

    assert (skipped.code, unknown.code) == (2, 2)
    assert "is SKIPPED: it has no output" in skipped.err
    assert "no node 'cont'; did you mean 'count'?" in unknown.err


def test_a_secret_is_masked_in_every_form_of_a_large_value(
    server: DevServer, commands: StoreAndServer
) -> None:
    with SyncClient(server.url) as client:
        done = client.run(flow(server, "secretive"))
        url = f"{server.url}/v1/executions/{done.execution_id}/output?node=leak"
        sent = httpx.get(url).text

    shown = commands.check_same("show", done.execution_id).out
    printed = commands.check_same("show", done.execution_id, "--node", "leak", "--output").out

    for text in (json.dumps(done.output), sent, shown, printed):
        assert SECRET not in text
        assert "***" in text


async def test_large_values_need_no_memory_of_the_server_and_delay_no_request(
    tmp_path: Path,
) -> None:
    """Another process has stored 20 outputs of 15 MB; two readers and a third caller ask for them.

    The third caller's requests take no longer than those of an idle server.
    """
    (tmp_path / "flows.py").write_text(FLOW)
    with dev_server(tmp_path, RUNNEL_API_RATE_LIMIT="0") as server:
        pid = server.process.pid
        ran = server.program.run("run", "flows.py:many", "--input", "mb=20")
        assert ran.returncode == 0, ran.stderr
        execution_id = server.program.documents("list")[0]["execution_id"]
        before_mb = read_peak_mb(pid)
        async with Client(server.url) as client, httpx.AsyncClient(base_url=server.url) as http:

            async def read_all() -> int:
                await client.get(execution_id)
                stream = client.values.stream_output(execution_id, "fill_2")
                return sum([len(chunk) async for chunk in stream])

            readers = [asyncio.create_task(read_all()) for _ in range(2)]
            waits_s = []
            while not all(reader.done() for reader in readers):
                started = time.monotonic()
                assert (await http.get("/health/live")).is_success
                waits_s.append(time.monotonic() - started)
            sizes = [await reader for reader in readers]
        after_mb = read_peak_mb(pid)

    assert min(sizes) > 15_000_000
    assert before_mb is not None
    assert after_mb is not None
    assert after_mb - before_mb < 30
    assert sorted(waits_s)[len(waits_s) // 2] < 0.1
