"""What is run at every crash point: a workflow, its handlers, and what its caller does."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from runnel.app.engine import Engine
from runnel.authoring.registry import HandlerRegistry
from runnel.client.store_client import Client
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped, NodeWaits
from runnel.core.ids import ExecutionId
from runnel.core.states import NODE_FINAL, NodeState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import StoreError, WrongStateError
from runnel.notify.hub import Happened, Started
from runnel.ports.store import CommitLimits
from simulation.crash_points.journal import About, Diary

# Whoever submitted the execution: comes back after a crash, repeats what got no answer.

ASKED_AGAIN_S = 0.02
LOOKED_AGAIN_S = 0.3

_REACHED = (NodeWaits, NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)
_STANDS_STILL = NODE_FINAL | {NodeState.WAITING}


class Caller:
    """`execution_id` is that of the one execution of the scenario."""

    def __init__(self, engine: Engine, diary: Diary) -> None:
        self.client: Client = engine.client
        self.execution_id = ExecutionId("")
        self._clock = engine.clock
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
            await self.insist(call)
        self.note_answer(what)

    def note_answer(self, what: str) -> None:
        self._diary.note(About.ANSWERS, what)

    async def insist(self, call: Callable[[], Awaitable[object]]) -> None:
        """Makes the call again, for as long as the store can't be reached."""
        while True:
            try:
                await call()
                return
            except StoreError as error:
                if not error.retryable:
                    raise
            await self._clock.sleep(ASKED_AGAIN_S)

    async def until_reached(self, node_id: str) -> None:
        """Until the node's code runs here, or it waits, or it is settled."""
        await self.insist(lambda: self._look_until_reached(node_id))

    async def _look_until_reached(self, node_id: str) -> None:
        """Nobody is told of a commit whose answer did not come: so it looks now and then."""
        while True:
            view = await self.client.get(self.execution_id)
            if view.nodes[node_id].state in _STANDS_STILL:
                return
            if await self._clock.wait(self._reached[node_id], LOOKED_AGAIN_S):
                return

    def _see(self, what: Happened | Started) -> None:
        if isinstance(what, Started):
            self._reached[what.token.node_id].set()
            return
        for event in what.events:
            if isinstance(event, _REACHED):
                self._reached[event.node].set()


_LIMITS = CommitLimits()


async def _only_waits(caller: Caller) -> None:
    """Most workflows need nothing but to be submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`acts` is called once the execution is submitted, and again in the process that resumes.

    Its end must not depend on timing: two nodes that race give two ends. Small `limits` cut what
    is decided at once into several commits, with a crash point between them.
    """

    name: str
    workflow: Workflow
    handlers: Callable[[Diary], HandlerRegistry]
    input: Json = None
    is_held: bool = False
    limits: CommitLimits = _LIMITS
    acts: Callable[[Caller], Awaitable[None]] = _only_waits
