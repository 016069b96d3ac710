"""The simulated store keeps the promises of the ports, when nothing goes wrong."""

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
from simulation.faults import Tally
from simulation.network import Network
from simulation.process import Process
from simulation.server import Server, Watcher, stream


class SimulatedHarness:
    def __init__(self, server: Server, clock: FakeClock) -> None:
        self._clock = clock
        network = Network(server, Random(0), frozenset(), Tally(), latency_s=0.0)
        process = Process("test", asyncio.get_running_loop())
        self.backend: Backend = SimulatedBackend(process, network, server)
        self._server = server

    async def abandon(self, lease: Lease) -> None:
        """A lease in memory stays as it is: its counter does not move any more."""

    async def inject_message(self, partition: int, body: bytes) -> None:
        stream(self._server.state, partition).put_raw(body)

    async def pass_time(self, seconds: float) -> None:
        await self._clock.advance(seconds)

    async def forget_changes(self) -> None:
        self._server.state.changes.forget(ENTRIES_MAX)


class TestSimulated(StoreConformance):
    @pytest.fixture
    async def harness(self, clock: FakeClock, ids: FakeIds) -> Harness:
        server = Server(clock, ids, Watcher(), partitions=1, limits=CommitLimits())
        return SimulatedHarness(server, clock)
