"""The network between processes and the store, which delays, repeats, reorders and drops calls."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, TypeVar

from runnel.errors import RunnelError, StoreError
from simulation.faults import Fault, RunStatistics
from simulation.process import SimulatedProcess
from simulation.server import SimulatedServer

T = TypeVar("T")

LATENCY_S = 0.0005
JITTER_S = 0.05
DELAY_S_MAX = 3.0
# The time that a caller waits for a response.
CALL_TIMEOUT_S = 1.0

# After this time, an enabled fault that has not occurred yet is injected into the next possible
# call.
FORCED_AFTER_S = 2.0

# The operations that may block in the store. The store executes all other operations at once.
BLOCKING_CALLS = frozenset({"claim", "read_after", "wait_dropped", "read"})

# The probability of each fault per call, while the fault is enabled.
FAULT_ODDS = {
    Fault.DROP: 0.02,
    Fault.ANSWER_LOST: 0.02,
    Fault.CLAIM_ANSWER_LOST: 0.15,
    Fault.DUPLICATE: 0.03,
    Fault.DELAY: 0.02,
}
# The name of a rare call, and the probability of its delay. The delay tests something only if the
# worker acts during it.
LOSS_VERDICT_CALL = "lose_worker_tasks"
LOSS_VERDICT_DELAY_ODDS = 0.9


class Network:
    """Carries calls from processes to the store.

    Without latency and faults, a call is executed at once and its response returns at once.
    """

    def __init__(
        self,
        server: SimulatedServer,
        rng: Random,
        faults: frozenset[Fault],
        tally: RunStatistics,
        *,
        latency_s: float = LATENCY_S,
    ) -> None:
        self._server = server
        self._rng = rng
        self._faults = faults
        self._tally = tally
        self._base_latency_s = latency_s
        self._latest_arrivals: dict[str, float] = {}
        self.is_healed = False

    async def call(
        self, process: SimulatedProcess, name: str, operation: Callable[[], Awaitable[T]]
    ) -> T:
        """Calls an operation of the store and returns its result.

        Raises StoreError if no response arrives; the store may still have executed the call.
        """
        process.check_alive()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # The value is drawn now, because the calls of a killed process end in an arbitrary order.
        is_noticed = self._rng.random() < 0.5
        call = _StoreCall(process, name, operation, answer, is_hangup_noticed=is_noticed)
        self._send(call)
        if self._should_inject(Fault.DUPLICATE):
            self._send(call)
        limit: asyncio.TimerHandle | None = None
        if name not in BLOCKING_CALLS and not self.is_healed:
            loop = asyncio.get_running_loop()
            limit = loop.call_later(CALL_TIMEOUT_S, call.fail, "no response in time")
        try:
            return await answer
        except asyncio.CancelledError:
            self._hang_up(call)
            raise
        finally:
            if limit is not None:
                limit.cancel()

    def _send(self, call: "_StoreCall") -> None:
        if call.process.is_cut_off or self._should_inject(Fault.DROP):
            _call_after(self._rng.uniform(0, CALL_TIMEOUT_S), call.fail, "no answer")
        else:
            latency_s = self._choose_latency_s(call.name)
            self._count_reordering(call.process.name, latency_s)
            _call_after(latency_s, self._arrive, call)

    def _arrive(self, call: "_StoreCall") -> None:
        """Executes a call that has arrived, even if its caller is dead."""
        busy_s = self._server.slow_until - self._server.clock.monotonic()
        if busy_s > 0:
            self._tally.faults[Fault.SLOW] += 1
            _call_after(busy_s, self._arrive, call)
            return
        if call.name in BLOCKING_CALLS:
            lost = partial(call.fail, "connection lost")
            call.server_tasks.append(self._server.serve(self._execute(call), lost))
        else:
            _run_at_once(self._execute(call))

    async def _execute(self, call: "_StoreCall") -> None:
        self._tally.steps += 1
        self._tally.late_calls += call.is_settled
        try:
            result: Any = await call.operation()
        except RunnelError as error:
            self._reply(call, call.fail, error)
            return
        except Exception as error:  # noqa: BLE001 - not an error of a store: a bug in the simulator
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": call.name, "exception": error})
            return
        self._reply(call, call.succeed, result)

    def _reply(self, call: "_StoreCall", settle: Callable[[Any], None], outcome: object) -> None:
        is_lost = call.process.is_cut_off or self._should_inject(Fault.ANSWER_LOST)
        is_claim = call.name == "claim" and bool(outcome)
        if is_lost or (is_claim and self._should_inject(Fault.CLAIM_ANSWER_LOST)):
            _call_after(self._rng.uniform(0, CALL_TIMEOUT_S), call.fail, "no answer")
        else:
            _call_after(self._choose_latency_s(), settle, outcome)

    def _hang_up(self, call: "_StoreCall") -> None:
        """Cancels the call in the store, if the store notices that the caller closed the
        connection.
        """
        if call.is_hangup_noticed:
            for task in call.server_tasks:
                task.cancel()

    def _choose_latency_s(self, name: str = "") -> float:
        if self._should_inject(
            Fault.DELAY, odds=LOSS_VERDICT_DELAY_ODDS if name == LOSS_VERDICT_CALL else None
        ):
            return self._rng.uniform(0, DELAY_S_MAX)
        if Fault.REORDER in self._faults and not self.is_healed:
            return self._rng.uniform(0, JITTER_S)
        return self._base_latency_s

    def _count_reordering(self, process: str, latency_s: float) -> None:
        """Counts a reordering only if the call overtakes an earlier call of the same process."""
        arrives = self._server.clock.monotonic() + latency_s
        if arrives < self._latest_arrivals.get(process, 0.0):
            self._tally.faults[Fault.REORDER] += 1
        else:
            self._latest_arrivals[process] = arrives

    def _should_inject(self, fault: Fault, *, odds: float | None = None) -> bool:
        """Returns True at random.

        After FORCED_AFTER_S, returns True if the fault has not occurred yet.
        """
        if self.is_healed or fault not in self._faults:
            return False
        is_due = not self._tally.faults[fault] and self._server.clock.monotonic() > FORCED_AFTER_S
        if not is_due and self._rng.random() >= (odds or FAULT_ODDS[fault]):
            return False
        self._tally.faults[fault] += 1
        return True


def _run_at_once(work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine without a separate task. A seed then takes 51 ms instead of 55 ms."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("an operation blocked: add its name to BLOCKING_CALLS")


def _call_after(seconds: float, callback: Callable[[Any], None], argument: object) -> None:
    if seconds > 0:
        asyncio.get_running_loop().call_later(seconds, callback, argument)
    else:
        callback(argument)


class _StoreCall:
    """One call to the store.

    `server_tasks` are the asyncio tasks that execute the call in the store: none, one, or two for a
    duplicate. `is_hangup_noticed` means that the store notices if the caller closes the connection.
    """

    def __init__(
        self,
        process: SimulatedProcess,
        name: str,
        operation: Callable[[], Awaitable[Any]],
        answer: "asyncio.Future[Any]",
        *,
        is_hangup_noticed: bool,
    ) -> None:
        self.name = name
        self.operation = operation
        self.is_hangup_noticed = is_hangup_noticed
        self.server_tasks: list[asyncio.Task[None]] = []
        self.process = process
        self._answer = answer

    @property
    def is_settled(self) -> bool:
        """True if the caller has a response or has stopped waiting."""
        return self._answer.done()

    def succeed(self, result: object) -> None:
        self.process.deliver(partial(self._settle, result, None))

    def fail(self, reason: "RunnelError | str") -> None:
        error = StoreError(f"{self.name}: {reason}") if isinstance(reason, str) else reason
        self.process.deliver(partial(self._settle, None, error))

    def _settle(self, result: object, error: RunnelError | None) -> None:
        if self._answer.done():
            return
        if error is None:
            self._answer.set_result(result)
        else:
            self._answer.set_exception(error)
