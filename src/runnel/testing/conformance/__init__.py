"""The promises of the ports as tests: every backend passes the same suite.

A backend's test file is one class with one fixture:

    class TestMine(StoreConformance):
        @pytest.fixture
        async def harness(self, clock: FakeClock, ids: FakeIds) -> AsyncIterator[Harness]:
            ...

The backend has one partition, or gives each process one of its own; asyncio_mode is "auto".
"""

from runnel.testing.conformance.attendance import AttendanceRules
from runnel.testing.conformance.blobs import BlobRules
from runnel.testing.conformance.claims import ClaimRules
from runnel.testing.conformance.commits import CommitRules
from runnel.testing.conformance.feed import FeedRules
from runnel.testing.conformance.fencing import FencingRules
from runnel.testing.conformance.inbox import InboxRules
from runnel.testing.conformance.leases import LeaseRules
from runnel.testing.conformance.letters import LetterRules
from runnel.testing.conformance.lists import ListRules
from runnel.testing.conformance.poison import PoisonRules
from runnel.testing.conformance.queries import QueryRules
from runnel.testing.conformance.rates import RateRules
from runnel.testing.conformance.records import RecordRules
from runnel.testing.conformance.registry import RegistryRules
from runnel.testing.conformance.reports import ReportRules
from runnel.testing.conformance.results import ResultRules
from runnel.testing.conformance.stored_definitions import StoredDefinitionRules
from runnel.testing.conformance.timers import TimerRules
from runnel.testing.conformance.windows import WindowRules
from runnel.testing.conformance.workers import WorkerRules

__all__ = ["StoreConformance"]


class StoreConformance(
    CommitRules,
    FencingRules,
    InboxRules,
    PoisonRules,
    TimerRules,
    LeaseRules,
    AttendanceRules,
    ClaimRules,
    ReportRules,
    WorkerRules,
    RegistryRules,
    QueryRules,
    StoredDefinitionRules,
    ListRules,
    LetterRules,
    BlobRules,
    RecordRules,
    RateRules,
    WindowRules,
    ResultRules,
    FeedRules,
):
    """All rules."""
