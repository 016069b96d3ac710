"""The simulated store passes the conformance suite if no faults are injected."""

import asyncio
from random import Random

import pytest

from runnel.backends.feed_log import ENTRIES_MAX
from runnel.ports import Backend
from runnel.ports.store import CommitLimits, Lease
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance
from runnel.testing.harness import Harness
from simulation.backend import SimulatedBackend
from simulation.faults import RunStatistics
from simulation.network import Network
from simulation.process import SimulatedProcess
from simulation.server import SimulatedServer, StoreObserver, get_stream_inbox


class SimulatedHarness:
    def __init__(self, server: SimulatedServer, clock: FakeClock) -> None:
        self._clock = clock
        network = Network(server, Random(0), frozenset(), RunStatistics(), latency_s=0.0)
        process = SimulatedProcess("test", asyncio.get_running_loop())
        self.backend: Backend = SimulatedBackend(process, network, server)
        self._server = server

    async def abandon_lease(self, lease: Lease) -> None:
        """Does nothing: a lease in memory stays, but its counter no longer changes."""

    async def inject_message(self, partition: int, body: bytes) -> None:
        get_stream_inbox(self._server.state, partition).put_raw(body)

    async def advance_time(self, seconds: float) -> None:
        await self._clock.advance(seconds)

    async def trim_feed(self) -> None:
        self._server.state.change_log.trim(ENTRIES_MAX)


class TestSimulated(StoreConformance):
    @pytest.fixture
    async def harness(self, clock: FakeClock, ids: FakeIds) -> Harness:
        server = SimulatedServer(clock, ids, StoreObserver(), partitions=1, limits=CommitLimits())
        return SimulatedHarness(server, clock)
