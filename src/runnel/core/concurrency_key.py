"""A concurrency key: a limited number of attempts hold the key, and each release grants it to the
next waiter.
"""

from collections.abc import Iterable
from typing import assert_never

from runnel.core.codec import decode_entry
from runnel.core.commands import AcquireLimit, LimitCommand, LimitGranted, ReleaseLimit, ResumeLimit
from runnel.core.effects import Decision, Effect, SendCommand
from runnel.core.events import LimitEvent, LimitHeld, LimitQueued, LimitReleased
from runnel.core.ids import NodeRef, TaskToken, make_node_ref


class ConcurrencyLimit:
    """The holders and waiters of one key.

    Holders and waiters are attempts. The token of an outdated attempt differs from the token of the
    current attempt.
    """

    __slots__ = ("by_ref", "holders", "key", "waiters")

    def __init__(self, key: str) -> None:
        self.key = key
        self.holders: dict[TaskToken, int] = {}
        self.waiters: dict[TaskToken, int] = {}
        # The holder or waiter of each node or item: an index, because there may be thousands.
        self.by_ref: dict[NodeRef, TaskToken] = {}

    @property
    def is_empty(self) -> bool:
        return not self.holders and not self.waiters


def decide_limit(limit: ConcurrencyLimit, command: LimitCommand) -> Decision:
    """Applies an acquire, release or resume command; returns the decision.

    Sends LimitGranted to each attempt that may continue.
    """
    decision = _LimitDecision(limit)
    match command:
        case AcquireLimit():
            decision.acquire(command)
        case ReleaseLimit():
            decision.release(command.holder)
        case ResumeLimit():
            decision.notify_holders()
        case _:
            assert_never(command)
    decision.grant_waiters()
    return Decision(events=decision.events, effects=decision.effects)


class _LimitDecision:
    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit = limit
        self.events: list[LimitEvent] = []
        self.effects: list[Effect] = []

    def acquire(self, command: AcquireLimit) -> None:
        holder = command.holder
        if holder in self.limit.holders:
            self._notify(holder)
            return
        if holder in self.limit.waiters:
            return
        older = self.limit.by_ref.get(make_node_ref(holder))
        if older is not None and older.attempt <= holder.attempt:
            self.release(older)
        self._emit(LimitQueued(holder=holder, limit=command.limit))

    def release(self, holder: TaskToken) -> None:
        if holder in self.limit.holders or holder in self.limit.waiters:
            self._emit(LimitReleased(holder=holder))

    def notify_holders(self) -> None:
        for holder in self.limit.holders:
            self._notify(holder)

    def grant_waiters(self) -> None:
        """Grants the key to waiters in order of arrival.

        A waiter that does not fit under its limit also delays the waiters after it.
        """
        while self.limit.waiters:
            holder, limit = next(iter(self.limit.waiters.items()))
            if len(self.limit.holders) >= limit:
                return
            self._emit(LimitHeld(holder=holder, limit=limit))
            self._notify(holder)

    def _notify(self, holder: TaskToken) -> None:
        self.effects.append(SendCommand(LimitGranted(key=self.limit.key, holder=holder)))

    def _emit(self, event: LimitEvent) -> None:
        self.events.append(event)
        evolve_limit(self.limit, event)


def evolve_limit(limit: ConcurrencyLimit, event: LimitEvent) -> None:
    match event:
        case LimitHeld():
            limit.waiters.pop(event.holder, None)
            limit.holders[event.holder] = event.limit
            _index_holder(limit, event.holder)
        case LimitQueued():
            limit.waiters[event.holder] = event.limit
            _index_holder(limit, event.holder)
        case LimitReleased():
            limit.holders.pop(event.holder, None)
            limit.waiters.pop(event.holder, None)
            if limit.by_ref.get(make_node_ref(event.holder)) == event.holder:
                del limit.by_ref[make_node_ref(event.holder)]
        case _:
            assert_never(event)


def _index_holder(limit: ConcurrencyLimit, holder: TaskToken) -> None:
    indexed = limit.by_ref.get(make_node_ref(holder))
    if indexed is None or indexed.attempt <= holder.attempt:
        limit.by_ref[make_node_ref(holder)] = holder


def replay_limit(key: str, entries: Iterable[bytes]) -> ConcurrencyLimit:
    limit = ConcurrencyLimit(key)
    for data in entries:
        for event in decode_entry(data).events:
            if isinstance(event, LimitEvent):
                evolve_limit(limit, event)
    return limit
