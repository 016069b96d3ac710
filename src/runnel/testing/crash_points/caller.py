"""Whoever submitted the execution: comes back after a crash, repeats what got no answer."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress

from runnel.client import Client
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped, NodeWaits
from runnel.core.ids import ExecutionId
from runnel.core.states import NODE_FINAL, NodeState
from runnel.errors import WrongStateError
from runnel.runtime.engine import Engine
from runnel.runtime.hub import Happened, Started
from runnel.testing.crash_points.diary import About, Diary

_REACHED = (NodeWaits, NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)
_STANDS_STILL = NODE_FINAL | {NodeState.WAITING}


class Caller:
    """`execution_id` is that of the one execution of the scenario."""

    def __init__(self, engine: Engine, diary: Diary) -> None:
        self.client: Client = engine.client
        self.execution_id = ExecutionId("")
        self._diary = diary
        self._answered = frozenset(diary.read(About.ANSWERS))
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        engine.hub.watch(self._see)

    def was_told(self, what: str) -> bool:
        """Whether an earlier process had answered it: then it must be stored."""
        return what in self._answered

    async def once(self, what: str, call: Callable[[], Awaitable[object]]) -> None:
        """Makes the call unless it was answered before; an execution that is over needs it no more.

        It may have had its effect all the same, when the process ended before the answer: it has
        to be one that can be repeated.
        """
        if self.was_told(what):
            return
        with suppress(WrongStateError):
            await call()
        self._diary.note(About.ANSWERS, what)

    async def until_reached(self, node_id: str) -> None:
        """Until the node's code runs here, or it waits, or it is settled."""
        view = await self.client.get(self.execution_id)
        if view.nodes[node_id].state not in _STANDS_STILL:
            await self._reached[node_id].wait()

    def _see(self, what: Happened | Started) -> None:
        if isinstance(what, Started):
            self._reached[what.token.node_id].set()
            return
        for event in what.events:
            if isinstance(event, _REACHED):
                self._reached[event.node].set()
