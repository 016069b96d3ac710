"""Ports: what the engine needs from the world, as small protocols with their promises."""

from typing import Protocol

from runnel.ports.archive import Archive
from runnel.ports.feed import Feed
from runnel.ports.records import BlobStore, Records, RequestWindows
from runnel.ports.store import Mailbox, Store, TaskQueue


class Backend(Protocol):
    """All ports of one store, opened and closed together."""

    store: Store
    mailbox: Mailbox
    tasks: TaskQueue
    archive: Archive
    blobs: BlobStore
    records: Records
    windows: RequestWindows
    feed: Feed

    async def claim_home_partition(self, owner: str) -> int:
        """The partition that new executions of this process go to, for stores that give each
        process one of its own; acquired by the caller afterwards. Such a store keeps it for this
        process until `close`, however often its lease is lost.
        """

    async def close(self) -> None: ...
