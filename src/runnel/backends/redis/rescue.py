"""What a store asks of its archive when a partition is taken."""

from typing import Protocol

from runnel.ports.store import Lease


class Rescue(Protocol):
    async def epoch_min(self, partition: int) -> int:
        """The least epoch that is above all that the archive has seen."""

    async def restore(self, lease: Lease) -> Lease:
        """As `Store.restore`."""


class NoArchive:
    """Redis by itself: what it has lost is lost."""

    async def epoch_min(self, partition: int) -> int:
        return 0

    async def restore(self, lease: Lease) -> Lease:
        return lease


NO_ARCHIVE = NoArchive()
