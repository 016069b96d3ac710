"""Which partitions can be acquired: free ones, and those whose owner gives no sign of life."""

import msgspec

from runnel.engine.liveness import Liveness
from runnel.ports.clock import Clock
from runnel.ports.store import LeaseRecord, Store


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """A partition at one look; it `is_still` when nothing about it has changed for a while."""

    lease: LeaseRecord | None = None
    is_still: bool = False

    @property
    def is_takeable(self) -> bool:
        return self.lease is None or self.is_still


class LeaseWatch:
    """Who looks every `look_s` sees at most `lease_s` later that an owner has died."""

    def __init__(self, store: Store, clock: Clock, lease_s: float) -> None:
        self._store = store
        self._liveness: Liveness[int, LeaseRecord | None] = Liveness(clock, lease_s)
        self.look_s = self._liveness.look_s

    async def look(self, partition: int) -> Sight:
        lease = await self._store.observe(partition)
        return Sight(lease=lease, is_still=self._liveness.is_dead(partition, lease))
