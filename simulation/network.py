"""Calls between processes and the store: late, twice, out of order, or lost on the way."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, TypeVar

from runnel.errors import RunnelError, StoreError
from simulation.faults import Fault, Tally
from simulation.process import Process
from simulation.server import Server

T = TypeVar("T")

LATENCY_S = 0.0005
JITTER_S = 0.05
SPIKE_S = 3.0
# How long a caller waits for an answer that does not come.
CALL_TIMEOUT_S = 1.0

# From then on, a fault that is switched on and has not happened yet does.
SURELY_AFTER_S = 2.0

# Operations in which the store may wait for something; it executes all others at once.
WAITING = frozenset({"claim", "read_after", "wait_dropped", "read"})

# How likely a call meets each of these, while the fault is switched on.
ODDS = {
    Fault.DROP: 0.02,
    Fault.UNSEEN: 0.02,
    Fault.LOST_CLAIM: 0.15,
    Fault.DUPLICATE: 0.03,
    Fault.DELAY: 0.02,
}
# A verdict is rare, and proves something only if what it is about moves while it is on its way.
VERDICT = "lose_tasks_of"
VERDICT_ODDS = 0.9


class Network:
    """With a `latency_s` of 0 and no faults, a call is executed and answered at once."""

    def __init__(
        self,
        server: Server,
        chance: Random,
        faults: frozenset[Fault],
        tally: Tally,
        *,
        latency_s: float = LATENCY_S,
    ) -> None:
        self._server = server
        self._chance = chance
        self._faults = faults
        self._tally = tally
        self._base_s = latency_s
        self._latest: dict[str, float] = {}
        self.is_healed = False

    async def call(self, process: Process, name: str, operate: Callable[[], Awaitable[T]]) -> T:
        """Raises StoreError when no answer comes: whether it was executed is not known then."""
        process.check_alive()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Drawn now: the calls of a process that is killed end in no particular order.
        is_missed = self._chance.random() < 0.5
        call = _Call(process, name, operate, answer, is_missed=is_missed)
        self._send(call)
        if self._has(Fault.DUPLICATE):
            self._send(call)
        limit: asyncio.TimerHandle | None = None
        if name not in WAITING and not self.is_healed:
            loop = asyncio.get_running_loop()
            limit = loop.call_later(CALL_TIMEOUT_S, call.fail, "no answer in time")
        try:
            return await answer
        except asyncio.CancelledError:
            self._hang_up(call)
            raise
        finally:
            if limit is not None:
                limit.cancel()

    def _send(self, call: "_Call") -> None:
        if call.process.is_cut_off or self._has(Fault.DROP):
            _after(self._chance.uniform(0, CALL_TIMEOUT_S), call.fail, "no answer")
        else:
            latency_s = self._latency_s(call.name)
            self._note_overtaking(call.process.name, latency_s)
            _after(latency_s, self._arrive, call)

    def _arrive(self, call: "_Call") -> None:
        """Not even the death of the caller stops what is on its way."""
        busy_s = self._server.slow_until - self._server.clock.monotonic()
        if busy_s > 0:
            self._tally.faults[Fault.SLOW] += 1
            _after(busy_s, self._arrive, call)
            return
        if call.name in WAITING:
            lost = partial(call.fail, "connection lost")
            call.serving.append(self._server.serve(self._execute(call), lost))
        else:
            _run_at_once(self._execute(call))

    async def _execute(self, call: "_Call") -> None:
        self._tally.steps += 1
        self._tally.late_calls += call.is_settled
        try:
            result: Any = await call.operate()
        except RunnelError as error:
            self._reply(call, call.fail, error)
            return
        except Exception as error:  # noqa: BLE001 - no store answers so: it is the simulator's own
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": call.name, "exception": error})
            return
        self._reply(call, call.succeed, result)

    def _reply(self, call: "_Call", settle: Callable[[Any], None], outcome: object) -> None:
        is_lost = call.process.is_cut_off or self._has(Fault.UNSEEN)
        is_claim = call.name == "claim" and bool(outcome)
        if is_lost or (is_claim and self._has(Fault.LOST_CLAIM)):
            _after(self._chance.uniform(0, CALL_TIMEOUT_S), call.fail, "no answer")
        else:
            _after(self._latency_s(), settle, outcome)

    def _hang_up(self, call: "_Call") -> None:
        """The caller waits no more; the store may or may not notice that the line is dead."""
        if call.is_missed:
            for task in call.serving:
                task.cancel()

    def _latency_s(self, name: str = "") -> float:
        if self._has(Fault.DELAY, odds=VERDICT_ODDS if name == VERDICT else None):
            return self._chance.uniform(0, SPIKE_S)
        if Fault.REORDER in self._faults and not self.is_healed:
            return self._chance.uniform(0, JITTER_S)
        return self._base_s

    def _note_overtaking(self, process: str, latency_s: float) -> None:
        """Counts what really arrives before something that the same process sent earlier."""
        arrives = self._server.clock.monotonic() + latency_s
        if arrives < self._latest.get(process, 0.0):
            self._tally.faults[Fault.REORDER] += 1
        else:
            self._latest[process] = arrives

    def _has(self, fault: Fault, *, odds: float | None = None) -> bool:
        """By the odds; the first one at the first chance, so that no plan comes to nothing."""
        if self.is_healed or fault not in self._faults:
            return False
        is_due = not self._tally.faults[fault] and self._server.clock.monotonic() > SURELY_AFTER_S
        if not is_due and self._chance.random() >= (odds or ODDS[fault]):
            return False
        self._tally.faults[fault] += 1
        return True


def _run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Without a task of its own: 51 ms a seed instead of 55."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("an operation that may wait has to be named in WAITING")


def _after(seconds: float, do: Callable[[Any], None], what: object) -> None:
    if seconds > 0:
        asyncio.get_running_loop().call_later(seconds, do, what)
    else:
        do(what)


class _Call:
    """`serving` are its executions in the store: none, one, or two of a duplicate.

    `is_missed`: should the caller hang up, the store notices.
    """

    def __init__(
        self,
        process: Process,
        name: str,
        operate: Callable[[], Awaitable[Any]],
        answer: "asyncio.Future[Any]",
        *,
        is_missed: bool,
    ) -> None:
        self.name = name
        self.operate = operate
        self.is_missed = is_missed
        self.serving: list[asyncio.Task[None]] = []
        self.process = process
        self._answer = answer

    @property
    def is_settled(self) -> bool:
        """Its caller has an answer, or has given up."""
        return self._answer.done()

    def succeed(self, result: object) -> None:
        self.process.deliver(partial(self._settle, result, None))

    def fail(self, why: "RunnelError | str") -> None:
        error = StoreError(f"{self.name}: {why}") if isinstance(why, str) else why
        self.process.deliver(partial(self._settle, None, error))

    def _settle(self, result: object, error: RunnelError | None) -> None:
        if self._answer.done():
            return
        if error is None:
            self._answer.set_result(result)
        else:
            self._answer.set_exception(error)
