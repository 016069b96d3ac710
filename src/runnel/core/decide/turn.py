"""One turn of deciding: events are applied as they are found, effects gather until the end."""

from collections import deque

import msgspec

from runnel.core.commands import Command, ReleaseLimit
from runnel.core.effects import ClearTimer, DropTask, Effect, SetTimer, Tell, TimerKey, TimerKind
from runnel.core.events import Event, Wait
from runnel.core.evolve import evolve
from runnel.core.execution import Execution, NodeRun
from runnel.core.ids import NO_ITEM, Nonce, Token
from runnel.core.policy import Policy
from runnel.core.scope import Values

TIMER_OF_WAIT = {
    Wait.RETRY: TimerKind.RETRY,
    Wait.CRASH: TimerKind.RETRY,
    Wait.RATE_LIMIT: TimerKind.RATE_LIMIT,
    Wait.SLEEP: TimerKind.SLEEP,
    Wait.SIGNAL: TimerKind.SIGNAL,
}


class Moment(msgspec.Struct, frozen=True):
    """What deciding needs from outside, as values: the time, a fresh nonce, blobs at hand."""

    now: float
    nonce: Nonce
    values: Values
    policy: Policy = Policy()


class Turn:
    """Carries one execution through one command; `to_evaluate` are nodes with settled parents."""

    __slots__ = ("effects", "events", "execution", "moment", "to_evaluate")

    def __init__(self, execution: Execution, moment: Moment) -> None:
        self.execution = execution
        self.moment = moment
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.to_evaluate: deque[int] = deque()

    @property
    def now(self) -> float:
        return self.moment.now

    def emit(self, event: Event) -> None:
        self.events.append(event)
        evolve(self.execution, event, self.moment.now)

    def settled(self, index: int) -> None:
        """To be called after the event that settled a node: its children may be next."""
        execution = self.execution
        for child in execution.graph.nodes[index].children:
            if not execution.unsettled[child]:
                self.to_evaluate.append(child)

    def tell(self, command: Command) -> None:
        self.effects.append(Tell(command))

    def drop(self, index: int, item: int, run: NodeRun) -> None:
        self.effects.append(DropTask(self.execution.token(index, item, run)))

    def release(self, index: int, item: int, run: NodeRun) -> None:
        """Gives back the concurrency key that this attempt holds or waits for."""
        if run.key:
            holder = self.execution.token(index, item, run)
            self.effects.append(Tell(ReleaseLimit(key=run.key, holder=holder)))

    def set_timer(
        self, index: int, item: int, kind: TimerKind, *, due: float, attempt: int
    ) -> None:
        key = self._timer_key(index, item, kind)
        self.effects.append(SetTimer(key, due, attempt))

    def clear_timer(self, index: int, item: int, kind: TimerKind) -> None:
        self.effects.append(ClearTimer(self._timer_key(index, item, kind)))

    def current(self, token: Token) -> tuple[int, NodeRun] | None:
        """The node or item that this token is the current attempt of; None for an old one.

        An old token comes from a worker that was given up: the attempt that replaced it reports
        for itself.
        """
        index = self.execution.graph.index.get(token.node_id)
        if index is None or self.execution.is_final:
            return None
        run = self.execution.run(index, token.item)
        if run is None or run.is_final:
            return None
        if run.attempt != token.attempt or run.nonce != token.nonce:
            return None
        if token.item == NO_ITEM and index in self.execution.maps:
            return None
        return index, run

    def _timer_key(self, index: int, item: int, kind: TimerKind) -> TimerKey:
        return TimerKey(self.execution.id, self.execution.graph.nodes[index].node.id, item, kind)
