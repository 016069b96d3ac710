"""The SQLite backend passes the conformance suite, with and without an fsync per commit."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance import StoreConformance
from runnel.testing.harness import Harness, SqliteHarness


class TestSqlite(StoreConformance):
    @pytest.fixture
    async def harness(
        self, tmp_path: Path, clock: FakeClock, ids: FakeIds
    ) -> AsyncIterator[Harness]:
        backend = await SqliteBackend.open(tmp_path, clock=clock, ids=ids)
        yield SqliteHarness(backend, tmp_path, clock)
        await backend.close()


@pytest.mark.slow
class TestSqliteThatSurvivesPowerLoss(StoreConformance):
    @pytest.fixture
    async def harness(
        self, tmp_path: Path, clock: FakeClock, ids: FakeIds
    ) -> AsyncIterator[Harness]:
        backend = await SqliteBackend.open(tmp_path, clock=clock, ids=ids, durability="power")
        yield SqliteHarness(backend, tmp_path, clock)
        await backend.close()
