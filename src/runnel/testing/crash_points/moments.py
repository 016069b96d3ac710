"""The moments of a process at which something can happen to it: before each call, and after it
if it changes what is stored.
"""

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from runnel.errors import StoreError
from runnel.testing.crash_points.diary import CUT, About, Diary

CRASHED = 77

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """At the moment `at` (1-based; None is never) the process ends, or only the call fails."""

    at: int | None = None
    is_deadly: bool = True


UNDISTURBED = Disturbance()


class Moments:
    """Counts, and disturbs at the moment that was asked for.

    A call has two moments: before it is made, and when it has had its effect but whoever waits
    for the answer has not seen it. One that is cancelled while it waits has only the first; so has
    one that only reads, because it leaves behind what was there before it.
    """

    def __init__(self, diary: Diary, disturbance: Disturbance) -> None:
        self.calls = 0
        self.passed = 0
        self._diary = diary
        self._disturbance = disturbance
        self._is_over = False

    async def around(
        self, call: str, work: Callable[[], Awaitable[T]], *, only_reads: bool = False
    ) -> T:
        self.calls += 1
        self._pass("before", call)
        if only_reads:
            return await work()
        try:
            answer = await work()
        except Exception:
            self._pass("after", call)
            raise
        self._pass("after", call)
        return answer

    def end(self) -> None:
        """Calls that fail from now on prove nothing: nobody is left to go on."""
        self._is_over = not self._disturbance.is_deadly

    def _pass(self, when: str, call: str) -> None:
        if self._is_over:
            return
        self.passed += 1
        if self.passed == self._disturbance.at:
            self._diary.note(About.MOMENT, f"{when} {call}")
            if self._disturbance.is_deadly:
                os._exit(CRASHED)
            raise StoreError(f"{CUT}: {when} {call}")
