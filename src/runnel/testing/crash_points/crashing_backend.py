"""A backend that ends its process at the n-th moment: before a call, or after it was answered."""

import inspect
import os
from collections.abc import Callable
from typing import Any

from runnel.ports.archive import Archive
from runnel.ports.backend import Backend
from runnel.ports.blobs import BlobStore
from runnel.ports.store import Mailbox, Store, TaskQueue
from runnel.testing.crash_points.diary import About, Diary

CRASHED = 77


class Moments:
    """Counts, and ends the process at the moment `at` (1-based); None counts only.

    A call has two moments: before it is made, and when it has had its effect but whoever waits
    for the answer has not seen it. One that is cancelled while it waits has only the first.
    """

    def __init__(self, diary: Diary, at: int | None) -> None:
        self.calls = 0
        self.passed = 0
        self._diary = diary
        self._at = at

    def before(self, call: str) -> None:
        self.calls += 1
        self._pass("before", call)

    def after(self, call: str) -> None:
        self._pass("after", call)

    def _pass(self, when: str, call: str) -> None:
        self.passed += 1
        if self.passed == self._at:
            self._diary.note(About.DEATH, f"{when} {call}")
            os._exit(CRASHED)


class CrashingBackend:
    """Every asynchronous method of every port counts; all else passes through."""

    def __init__(self, backend: Backend, moments: Moments) -> None:
        self.store: Store = _Counted("store", backend.store, moments)
        self.mailbox: Mailbox = _Counted("mailbox", backend.mailbox, moments)
        self.tasks: TaskQueue = _Counted("tasks", backend.tasks, moments)
        self.archive: Archive = _Counted("archive", backend.archive, moments)
        self.blobs: BlobStore = _Counted("blobs", backend.blobs, moments)
        self._backend = backend
        self._claim_home = _counted("claim_home", backend.claim_home, moments)

    async def claim_home(self, owner: str) -> int:
        home: int = await self._claim_home(owner)
        return home

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
        moments.before(name)
        try:
            answer = await method(*args, **named)
        except Exception:
            moments.after(name)
            raise
        moments.after(name)
        return answer

    return call
