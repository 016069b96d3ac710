"""A simulated store that is rolled back by a crash."""

import asyncio
from random import Random

import pytest

from runnel.errors import FencedError
from runnel.ports import Backend
from runnel.ports.store import Commit, CommitLimits, Lease
from runnel.testing.clock import FakeClock, FakeIds
from simulation.backend import SimulatedBackend
from simulation.faults import RunStatistics
from simulation.network import Network
from simulation.process import SimulatedProcess
from simulation.server import SimulatedServer, StoreObserver


@pytest.fixture
def server() -> SimulatedServer:
    return SimulatedServer(
        FakeClock(), FakeIds(), StoreObserver(), partitions=1, limits=CommitLimits()
    )


@pytest.fixture
async def backend(server: SimulatedServer) -> Backend:
    network = Network(server, Random(0), frozenset(), RunStatistics(), latency_s=0.0)
    return SimulatedBackend(SimulatedProcess("test", asyncio.get_running_loop()), network, server)


async def use(backend: Backend, call: str, lease: Lease) -> None:
    store = backend.store
    if call == "commit":
        await store.commit(lease, Commit(sequence=1))
    elif call == "renew":
        await store.renew(lease)
    else:
        await store.read_inbox(lease, limit=1, wait_s=0)


@pytest.mark.parametrize("call", ["commit", "renew", "read_inbox"])
async def test_no_lease_survives_a_crash_of_the_store(
    server: SimulatedServer, backend: Backend, call: str
) -> None:
    lease = await backend.store.acquire(0, "one")
    server.restore(server.snapshot())

    with pytest.raises(FencedError):
        await use(backend, call, lease)


async def test_a_lease_record_survives_a_crash_and_can_be_taken_over(
    server: SimulatedServer, backend: Backend
) -> None:
    await backend.store.acquire(0, "one")
    server.restore(server.snapshot())

    record = await backend.store.observe(0)
    lease = await backend.store.acquire(0, "two", expected=record)

    assert record is not None
    assert record.owner == "one"
    assert lease.epoch > record.epoch
