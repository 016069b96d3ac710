"""What every piece of the orchestrator works with."""

import msgspec

from runnel.core.policy import Policy
from runnel.ports.archive import Archive
from runnel.ports.blobs import BlobStore
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import Store
from runnel.ports.telemetry import Telemetry


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    archive: Archive
    blobs: BlobStore
    clock: Clock
    ids: Ids
    telemetry: Telemetry
    policy: Policy = Policy()
    cached_executions_max: int = 5_000
    idle_s_max: float = 1.0
    """The longest wait for an inbox entry: a bound, not a poll; an entry ends the wait."""
