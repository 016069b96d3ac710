"""Those who ask for executions, signal and cancel them, and wait for their end.

What they asked for is theirs to remember: it is sent until the store has taken it, and again when
the store was set back, as callers of a real deployment have it from the table of commands.
"""

import asyncio
from collections.abc import Iterator

from runnel.client.store_client import Client
from runnel.core.commands import (
    CancelExecution,
    Command,
    CreateExecution,
    SendSignal,
    StartExecution,
)
from runnel.core.ids import ExecutionId
from runnel.core.values import inline
from runnel.core.workflow import hash_workflow
from runnel.errors import NotFoundError, StoreError
from runnel.notify.waiter import Ending
from runnel.testing.clock import FakeIds
from simulation.backend import SimulatedBackend
from simulation.plan import Order, payload_of
from simulation.process import EPOCH, Process
from simulation.workload import signals_of

AGAIN_S = 0.2
REPEATED_AFTER_S = 0.7


class Callers:
    def __init__(self, process: Process, backend: SimulatedBackend) -> None:
        self.process = process
        self.finals: dict[ExecutionId, str] = {}
        """How each execution ended, as its caller was told."""
        self._backend = backend
        self._client = Client(backend, process.clock, FakeIds("c"), ending_of=lambda _id: Ending())
        self._letters: list[_Letters] = []

    @property
    def has_sent_all(self) -> bool:
        return all(each.is_sent for each in self._letters)

    async def run(self, orders: tuple[Order, ...]) -> None:
        """Never ends by itself: what was stored may have to be sent again."""
        self._letters = [_Letters(order) for order in orders]
        async with asyncio.TaskGroup() as group:
            for order, letters in zip(orders, self._letters, strict=True):
                group.create_task(self._send(letters))
                group.create_task(self._wait(order))

    def send_again(self) -> None:
        """All that the store had taken: whether it still knows of it is the store's to say."""
        for letters in self._letters:
            letters.begin_again()

    async def _send(self, letters: "_Letters") -> None:
        """One after the other: nobody signals what is not known to exist."""
        clock = self.process.clock
        while True:
            await letters.has_more.wait()
            turn, (at, command) = letters.turn, letters.next
            await clock.sleep(at - clock.monotonic())
            try:
                await self._backend.mailbox.send([command])
            except StoreError:
                await clock.sleep(AGAIN_S)
            else:
                letters.sent(turn)

    async def _wait(self, order: Order) -> None:
        await self.process.clock.sleep(order.at)
        while order.execution_id not in self.finals:
            try:
                header = await self._client.wait(order.execution_id)
                self.finals[order.execution_id] = str(header.state)
            except (StoreError, NotFoundError):
                await self.process.clock.sleep(AGAIN_S)


class _Letters:
    """What is asked of one execution, in order, and how far that has got."""

    def __init__(self, order: Order) -> None:
        self._all = sorted(_commands(order), key=lambda each: each[0])
        self._sent = 0
        self.turn = 0
        self.has_more = asyncio.Event()
        self.has_more.set()

    @property
    def is_sent(self) -> bool:
        return self._sent == len(self._all)

    @property
    def next(self) -> tuple[float, Command]:
        return self._all[self._sent]

    def sent(self, turn: int) -> None:
        """Counts only in the turn in which it was begun: the store may have forgotten it since."""
        if turn == self.turn:
            self._sent += 1
            if self.is_sent:
                self.has_more.clear()

    def begin_again(self) -> None:
        self.turn += 1
        self._sent = 0
        self.has_more.set()


def _commands(order: Order) -> Iterator[tuple[float, Command]]:
    id_ = order.execution_id
    created = CreateExecution(
        execution_id=id_,
        workflow=order.workflow.name,
        definition=hash_workflow(order.workflow),
        version=1,
        input=inline(order.input),
        is_held=order.start_at is not None,
        created_at=EPOCH + order.at,
    )
    yield order.at, created
    if order.start_at is not None:
        given = None if order.start_input is None else inline(order.start_input)
        yield order.start_at, StartExecution(execution_id=id_, input=given)
    names = signals_of(order.workflow)
    for number, at in enumerate(order.signals_at):
        name = names[number % len(names)]
        payload = inline(payload_of(id_, f"s{number}"))
        signal = SendSignal(execution_id=id_, name=name, payload=payload, signal_id=f"s{number}")
        yield at, signal
        if order.repeats_signals:
            yield at + REPEATED_AFTER_S, signal
    if order.cancel_at is not None:
        yield order.cancel_at, CancelExecution(execution_id=id_, is_forced=order.is_forced)
