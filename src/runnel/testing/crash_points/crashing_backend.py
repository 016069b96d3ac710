"""A backend whose every call to a port is a crash point."""

import inspect
from collections.abc import Callable
from typing import Any

from runnel.ports.archive import Archive
from runnel.ports.backend import Backend
from runnel.ports.blobs import BlobStore
from runnel.ports.feed import Feed
from runnel.ports.records import Records
from runnel.ports.store import Mailbox, Store, TaskQueue
from runnel.ports.windows import RequestWindows
from runnel.testing.crash_points.moments import Moments

# Not all that there are, but all of which a life has many.
_READS = frozenset(
    {
        "archive.get_definition",
        "archive.get_header",
        "archive.list_headers",
        "blobs.get",
        "feed.end",
        "feed.read",
        "store.due_timers",
        "store.keys_of",
        "store.load",
        "store.next_due",
        "store.observe",
        "store.read_inbox",
        "store.route",
        "store.running",
    }
)


class CrashingBackend:
    """Every asynchronous method of every port counts; all else passes through."""

    def __init__(self, backend: Backend, moments: Moments) -> None:
        self.store: Store = _Counted("store", backend.store, moments)
        self.mailbox: Mailbox = _Counted("mailbox", backend.mailbox, moments)
        self.tasks: TaskQueue = _Counted("tasks", backend.tasks, moments)
        self.archive: Archive = _Counted("archive", backend.archive, moments)
        self.blobs: BlobStore = _Counted("blobs", backend.blobs, moments)
        self.records: Records = _Counted("records", backend.records, moments)
        self.windows: RequestWindows = _Counted("windows", backend.windows, moments)
        self.feed: Feed = _Counted("feed", backend.feed, moments)
        self._backend = backend
        self._moments = moments

    async def claim_home(self, owner: str) -> int:
        return await self._moments.around("claim_home", lambda: self._backend.claim_home(owner))

    async def close(self) -> None:
        await self._backend.close()


class _Counted:
    def __init__(self, name: str, part: object, moments: Moments) -> None:
        self._name = name
        self._part = part
        self._moments = moments

    # Any: it stands for whichever port it is asked to be.
    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not inspect.iscoroutinefunction(found):
            return found
        call = _counted(f"{self._name}.{name}", found, self._moments)
        setattr(self, name, call)
        return call


def _counted(name: str, method: Callable[..., Any], moments: Moments) -> Callable[..., Any]:
    async def call(*args: Any, **named: Any) -> Any:
        return await moments.around(name, lambda: method(*args, **named), only_reads=name in _READS)

    return call
