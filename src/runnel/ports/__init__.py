"""Ports: the protocols through which the engine uses stores, clocks, secrets and telemetry."""

from typing import TYPE_CHECKING, Protocol

# The settings read one number of `ports.workers`; the other ports take 14 ms to import.
if TYPE_CHECKING:
    from runnel.ports.archive import Archive
    from runnel.ports.feed import Feed
    from runnel.ports.records import RandomAccessBlobStore, Records, RequestWindows
    from runnel.ports.store import Mailbox, Store, Submission, TaskQueue


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

    async def claim_home_partition(self, owner: str, *, submits: "Submission | None" = None) -> int:
        """Returns the partition that receives the new executions of this process.

        With `submits`, this process runs no engine and does not reserve the partition. New
        executions go to a partition of a living owner that starts them at once. If there is none,
        they go to a partition that waits for the next engine to adopt it.

        Only some stores give each process a partition of its own. Such a store reserves the
        partition for this process until `close`, even if the process loses the lease. The caller
        must still acquire the lease.
        """

    async def close(self) -> None: ...
