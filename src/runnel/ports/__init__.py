"""Ports: the protocols through which the engine uses stores, clocks, secrets and telemetry."""

from typing import TYPE_CHECKING, Protocol

# The settings read one number of `ports.workers`; the other ports take 14 ms to import.
if TYPE_CHECKING:
    from runnel.ports.archive import Archive
    from runnel.ports.feed import Feed
    from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
    from runnel.ports.store import Mailbox, OwnerFilter, Store, TaskQueue


class Backend(Protocol):
    """All ports of one store. A process opens and closes these ports together."""

    store: "Store"
    mailbox: "Mailbox"
    tasks: "TaskQueue"
    archive: "Archive"
    blobs: "RandomAccessBlobStore"
    records: "Records"
    windows: "RequestWindows"
    feed: "Feed"

    async def claim_home_partition(self, owner: str, *, joins: "OwnerFilter | None" = None) -> int:
        """Returns the partition that receives the new executions of this process.

        If `joins` is True for the name of a living owner, new executions go to a partition of that
        owner, which starts them at once. This process does not reserve that partition.

        Only some stores give each process a partition of its own. Such a store reserves the
        partition for this process until `close`, even if the process loses the lease. The caller
        must still acquire the lease.
        """

    async def close(self) -> None: ...
