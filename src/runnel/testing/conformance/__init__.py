"""The conformance suite: tests of the promises of the ports, which every backend must pass.

The test file of a backend has one class with one fixture:

    class TestMine(StoreConformance):
        @pytest.fixture
        async def harness(self, clock: FakeClock, ids: FakeIds) -> AsyncIterator[Harness]:
            ...

The tested backend has one partition, or one partition per process. The pytest option asyncio_mode
must be "auto".
"""

from runnel.testing.conformance.archive import ArchiveLookupRules, ExecutionListRules
from runnel.testing.conformance.claims import ClaimRules, ReportRules
from runnel.testing.conformance.commits import CommitRules, FencingRules
from runnel.testing.conformance.definitions import DeadLetterRules, StoredDefinitionRules
from runnel.testing.conformance.fairness import FairnessRules
from runnel.testing.conformance.feed import FeedRules
from runnel.testing.conformance.inbox import InboxRules, TimerRules
from runnel.testing.conformance.leases import (
    LeaseRules,
    OrchestratorPresenceRules,
    UnreadableMessageRules,
)
from runnel.testing.conformance.records import (
    BlobRules,
    CachedResultRules,
    RateLimitRules,
    RecordRules,
    RequestWindowRules,
)
from runnel.testing.conformance.stops import StopRules
from runnel.testing.conformance.workers import LostTaskRules, WorkerRegistryRules

__all__ = ["StoreConformance"]


class StoreConformance(
    CommitRules,
    FencingRules,
    InboxRules,
    UnreadableMessageRules,
    TimerRules,
    LeaseRules,
    OrchestratorPresenceRules,
    ClaimRules,
    FairnessRules,
    ReportRules,
    StopRules,
    LostTaskRules,
    WorkerRegistryRules,
    ArchiveLookupRules,
    StoredDefinitionRules,
    ExecutionListRules,
    DeadLetterRules,
    BlobRules,
    RecordRules,
    RateLimitRules,
    RequestWindowRules,
    CachedResultRules,
    FeedRules,
):
    """All tests of the conformance suite. The test class of a backend inherits from this class."""
