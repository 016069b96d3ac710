"""`runnel.lifespan`: an engine for as long as a FastAPI or Starlette service runs."""

from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

import runnel
from runnel.errors import InputError
from tests.integration import engine_flows as flows


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("RUNNEL_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@asynccontextmanager
async def serve(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Starts the service as a server does: the state of its lifespan is that of each request."""
    async with app.router.lifespan_context(app) as state:

        async def call(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            await app({**scope, "state": dict(state or {})}, receive, send)

        transport = httpx.ASGITransport(call)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client


def add_routes(app: FastAPI) -> None:
    @app.get("/run/{number}")
    async def run(number: int, request: Request) -> int:
        engine: runnel.Engine = request.state.engine
        return await engine.run(flows.doubled, number)

    @app.get("/submit/{number}")
    async def submit(number: int, request: Request) -> int:
        engine: runnel.Engine = request.state.engine
        result: int = await engine.result(await runnel.submit(flows.doubled, number))
        return result

    @app.get("/plain/{number}")
    def run_in_a_thread(number: int) -> int:
        return flows.doubled.run(number)


async def test_async_and_plain_routes_use_the_engine_of_the_service(data_dir: Path) -> None:
    app = FastAPI(lifespan=runnel.lifespan())
    add_routes(app)

    async with serve(app) as client:
        answers = [(await client.get(f"/{path}/4")).json() for path in ("run", "submit", "plain")]

    assert answers == [8, 8, 8]
    assert len(list(data_dir.glob("p*.lock"))) == 1, "another engine was opened"


async def test_a_service_can_be_started_again() -> None:
    app = FastAPI(lifespan=runnel.lifespan(concurrency=1))
    add_routes(app)

    for number in (1, 2):
        async with serve(app) as client:
            assert (await client.get(f"/run/{number}")).json() == 2 * number


async def test_a_lifespan_of_the_user_runs_inside_that_of_the_engine(tmp_path: Path) -> None:
    seen: list[Any] = []

    @asynccontextmanager
    async def open_database(app: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        seen.append(await app.state.engine.run(flows.doubled, 1))
        yield {"database": "open"}
        seen.append(await app.state.engine.run(flows.doubled, 2))

    app = FastAPI(lifespan=runnel.lifespan(open_database, data_dir=tmp_path / "own"))

    @app.get("/")
    async def show(request: Request) -> str:
        return f"{request.state.database} {await request.state.engine.run(flows.doubled, 3)}"

    async with serve(app) as client:
        answer = (await client.get("/")).json()

    assert answer == "open 6"
    assert seen == [2, 4]
    assert (tmp_path / "own").is_dir()


async def test_a_wrong_argument_stops_the_start_of_the_service() -> None:
    app = FastAPI(lifespan=runnel.lifespan(apps=["no_such_module"]))

    with pytest.raises(InputError, match="no_such_module"):
        async with serve(app):
            pass
