"""A scenario that runs at every crash point: a workflow, its handlers and its caller's actions."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.authoring.registry import HandlerRegistry
from runnel.client.store_client import StoreClient
from runnel.core.events import NodeCancelled, NodeCompleted, NodeFailed, NodeSkipped, NodeWaits
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_NODE_STATES, NodeState
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.errors import StoreError, WrongStateError
from runnel.notify.event_bus import CommittedEvents, StartedTask
from runnel.ports.store import CommitLimits
from simulation.crash_points.journal import JournalFile, RunJournal

RETRY_DELAY_S = 0.02
POLL_INTERVAL_S = 0.3

_REACHED_EVENTS = (NodeWaits, NodeCompleted, NodeFailed, NodeSkipped, NodeCancelled)
_REACHED_STATES = FINAL_NODE_STATES | {NodeState.WAITING}


class ScenarioCaller:
    """The caller of the scenario's execution.

    After a crash, the caller repeats calls without a response.
    """

    def __init__(self, engine: EmbeddedEngine, journal: RunJournal) -> None:
        self.client: StoreClient = engine.client
        self.execution_id = ExecutionId("")
        self._clock = engine.clock
        self._journal = journal
        self._answered = frozenset(journal.read(JournalFile.ANSWERS))
        self._reached: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        engine.event_bus.watch(self._on_notification)

    def has_answer(self, name: str) -> bool:
        """Returns True if an earlier process got a response to the call, so its effect must be
        stored.
        """
        return name in self._answered

    async def call_once(self, name: str, call: Callable[[], Awaitable[object]]) -> None:
        """Makes the call, unless an earlier process got its response.

        A final execution may refuse the call. The call must be safe to repeat, because the process
        may have been killed after the effect of the call and before the response.
        """
        if self.has_answer(name):
            return
        with suppress(WrongStateError):
            await self.call_until_answered(call)
        self.record_answer(name)

    def record_answer(self, name: str) -> None:
        self._journal.append(JournalFile.ANSWERS, name)

    async def call_until_answered(self, call: Callable[[], Awaitable[object]]) -> None:
        """Repeats the call while the store is unreachable."""
        while True:
            try:
                await call()
                return
            except StoreError as error:
                if not error.retryable:
                    raise
            await self._clock.sleep(RETRY_DELAY_S)

    async def wait_until_reached(self, node_id: str) -> None:
        """Waits until the code of the node runs in this process, or until the node waits or is
        settled.
        """
        await self.call_until_answered(lambda: self._poll_until_reached(node_id))

    async def _poll_until_reached(self, node_id: str) -> None:
        """Polls the state of the node, because a commit without a response sends no
        notification.
        """
        while True:
            view = await self.client.get(self.execution_id)
            if view.nodes[node_id].status in _REACHED_STATES:
                return
            if await self._clock.wait(self._reached[node_id], POLL_INTERVAL_S):
                return

    def _on_notification(self, notification: CommittedEvents | StartedTask) -> None:
        if isinstance(notification, StartedTask):
            self._reached[notification.token.node_id].set()
            return
        for event in notification.events:
            if isinstance(event, _REACHED_EVENTS):
                self._reached[event.node].set()


_DEFAULT_LIMITS = CommitLimits()


async def _do_nothing(caller: ScenarioCaller) -> None:
    """Does nothing after the submit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A workflow with its handlers and caller.

    `caller_actions` runs after the submit, and again in the resuming process. The result must not
    depend on timing. Small `limits` split a decision into several commits with crash points between
    them.
    """

    name: str
    workflow: Workflow
    handlers: Callable[[RunJournal], HandlerRegistry]
    input: Json = None
    is_held: bool = False
    limits: CommitLimits = _DEFAULT_LIMITS
    caller_actions: Callable[[ScenarioCaller], Awaitable[None]] = _do_nothing
