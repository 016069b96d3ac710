"""The example `examples/service`: workflows inside a web service that is killed."""

import asyncio
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.e2e.program import DEADLINE_S, clean_environment
from tests.waiting import wait_for_value

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FOLDER = Path(__file__).parents[2] / "examples" / "service"
LISTENS = re.compile(r"running on (http://[\d.:]+)")
# A living process takes over a dead one after a sixth of ORCHESTRATOR_LEASE_TIMEOUT (10 s).
TAKEOVER_S = 10.0


class Service(NamedTuple):
    process: subprocess.Popen[bytes]
    client: httpx.AsyncClient

    async def create(self, **order: object) -> str:
        response = await self.client.post("/orders", json={"product": "tea", **order})
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    async def approve(self, order_id: str) -> None:
        response = await self.client.post(f"/orders/{order_id}/approve", params={"by": "ada"})
        assert response.status_code == 200, response.text

    async def wait_for(
        self, order_id: str, is_wanted: Callable[[dict[str, Any]], bool], deadline_s: float
    ) -> dict[str, Any]:
        async def read() -> dict[str, Any] | None:
            order: dict[str, Any] = (await self.client.get(f"/orders/{order_id}")).json()
            return order if is_wanted(order) else None

        return await wait_for_value(read, every_s=0.02, deadline_s=deadline_s)

    async def wait_until_packing(self, order_id: str) -> None:
        await self.wait_for(order_id, is_packing, DEADLINE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)


def is_packing(order: dict[str, Any]) -> bool:
    return bool(order["nodes"]["pack"] == "RUNNING")


def is_complete(order: dict[str, Any]) -> bool:
    return bool(order["status"] == "COMPLETED")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(FOLDER, tmp_path / "service")
    return tmp_path / "service"


@asynccontextmanager
async def serve(folder: Path, **environment: str) -> AsyncIterator[Service]:
    """Starts the service on a free port, and ends it after the block."""
    log = folder / "service.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "orders:app", "--port", "0"],
            cwd=folder,
            env=clean_environment(**environment),
            stderr=stderr,
        )
    try:
        found = await wait_for_value(
            read_match(log, process), every_s=0.05, deadline_s=3 * DEADLINE_S
        )
        async with httpx.AsyncClient(base_url=found) as client:
            yield Service(process, client)
    finally:
        process.kill()
        process.wait(DEADLINE_S)


def read_match(log: Path, process: subprocess.Popen[bytes]) -> Callable[[], Awaitable[str | None]]:
    async def read() -> str | None:
        assert process.poll() is None, log.read_text()
        found = LISTENS.search(log.read_text())
        return None if found is None else found[1]

    return read


async def test_an_order_of_a_killed_service_continues_when_it_starts_again(folder: Path) -> None:
    async with serve(folder) as service:
        order_id = await service.create(pieces=3, packing_s=1.0)
        await service.wait_until_packing(order_id)
        service.kill()

    async with serve(folder) as service:
        await service.approve(order_id)
        order = await service.wait_for(order_id, is_complete, DEADLINE_S)

    assert order["parcel"] == {"content": "3 x tea", "approved_by": "ada"}


async def test_a_living_process_takes_over_the_orders_of_a_dead_one(folder: Path) -> None:
    async with serve(folder) as first, serve(folder) as second:
        orders = [await first.create(packing_s=1.0) for _ in range(3)]
        others = [await second.create() for _ in range(2)]
        await first.wait_until_packing(orders[0])
        for order_id in [*orders, *others]:
            await second.approve(order_id)
        first.kill()
        shipped = [
            await second.wait_for(order_id, is_complete, TAKEOVER_S + DEADLINE_S)
            for order_id in [*orders, *others]
        ]

    assert [order["parcel"]["approved_by"] for order in shipped] == ["ada"] * 5


async def test_a_stopped_service_finishes_its_running_tasks(folder: Path) -> None:
    async with serve(folder) as service:
        order_id = await service.create(packing_s=0.5)
        await service.wait_until_packing(order_id)
        service.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(service.process.wait, DEADLINE_S)

    async with serve(folder) as service:
        order = (await service.client.get(f"/orders/{order_id}")).json()

    assert order["nodes"]["pack"] == "COMPLETED"


async def test_an_unknown_order_is_not_found(folder: Path) -> None:
    async with serve(folder) as service:
        response = await service.client.get("/orders/x")

    assert response.status_code == 404
    assert "execution 'x'" in response.text
