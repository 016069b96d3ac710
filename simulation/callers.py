"""Simulated callers, which submit, signal and cancel executions, and wait for their end.

A caller keeps its commands. The caller sends each command until the store accepts it, and sends all
commands again after a rollback of the store. In a real deployment, the table of commands in
PostgreSQL has this role.
"""

import asyncio
from collections.abc import Iterator

from runnel.client.store_client import StoreClient
from runnel.core.commands import (
    CancelExecution,
    Command,
    CreateExecution,
    SendSignal,
    StartExecution,
)
from runnel.core.ids import ExecutionId
from runnel.core.values import make_inline_value
from runnel.core.workflow import hash_workflow
from runnel.errors import NotFoundError, StoreError
from runnel.notify.waiter import Completion
from runnel.testing.clock import FakeIds
from simulation.backend import SimulatedBackend
from simulation.plan import ExecutionOrder, make_signal_payload
from simulation.process import EPOCH, SimulatedProcess
from simulation.workload import list_signals

RETRY_DELAY_S = 0.2
SIGNAL_REPEAT_DELAY_S = 0.7


class SimulatedCallers:
    def __init__(self, process: SimulatedProcess, backend: SimulatedBackend) -> None:
        self.process = process
        self.final_states: dict[ExecutionId, str] = {}
        """The final state of each execution, as its caller received it."""
        self._backend = backend
        self._client = StoreClient(
            backend, process.clock, FakeIds("c"), get_completion=lambda _id: Completion()
        )
        self._command_queues: list[_CommandQueue] = []

    @property
    def has_sent_all(self) -> bool:
        return all(queue.is_sent for queue in self._command_queues)

    async def run(self, orders: tuple[ExecutionOrder, ...]) -> None:
        """Sends the commands of all orders and waits for the executions.

        Runs until it is cancelled, because after a rollback all commands must be sent again.
        """
        self._command_queues = [_CommandQueue(order) for order in orders]
        async with asyncio.TaskGroup() as group:
            for order, queue in zip(orders, self._command_queues, strict=True):
                group.create_task(self._send_commands(queue))
                group.create_task(self._wait_for_end(order))

    def resend_all(self) -> None:
        """Sends all commands again. The store ignores the commands that it still has."""
        for queue in self._command_queues:
            queue.restart()

    async def _send_commands(self, queue: "_CommandQueue") -> None:
        """Sends the commands of one execution in order, because a signal needs an existing
        execution.
        """
        clock = self.process.clock
        while True:
            await queue.has_more.wait()
            generation, (at, command) = queue.generation, queue.next_command
            await clock.sleep(at - clock.monotonic())
            try:
                await self._backend.mailbox.send([command])
            except StoreError:
                await clock.sleep(RETRY_DELAY_S)
            else:
                queue.mark_sent(generation)

    async def _wait_for_end(self, order: ExecutionOrder) -> None:
        await self.process.clock.sleep(order.at)
        while order.execution_id not in self.final_states:
            try:
                header = await self._client.wait_for_end(order.execution_id)
                self.final_states[order.execution_id] = str(header.state)
            except (StoreError, NotFoundError):
                await self.process.clock.sleep(RETRY_DELAY_S)


class _CommandQueue:
    """The commands for one execution, in order, and how many of them were sent."""

    def __init__(self, order: ExecutionOrder) -> None:
        self._commands = sorted(_build_commands(order), key=lambda command: command[0])
        self._sent_count = 0
        self.generation = 0
        self.has_more = asyncio.Event()
        self.has_more.set()

    @property
    def is_sent(self) -> bool:
        return self._sent_count == len(self._commands)

    @property
    def next_command(self) -> tuple[float, Command]:
        return self._commands[self._sent_count]

    def mark_sent(self, generation: int) -> None:
        """Marks a command as sent, unless a rollback has started a new generation."""
        if generation == self.generation:
            self._sent_count += 1
            if self.is_sent:
                self.has_more.clear()

    def restart(self) -> None:
        self.generation += 1
        self._sent_count = 0
        self.has_more.set()


def _build_commands(order: ExecutionOrder) -> Iterator[tuple[float, Command]]:
    id_ = order.execution_id
    created = CreateExecution(
        execution_id=id_,
        workflow=order.workflow.name,
        definition=hash_workflow(order.workflow),
        version=1,
        input=make_inline_value(order.input),
        is_held=order.start_at is not None,
        created_at=EPOCH + order.at,
    )
    yield order.at, created
    if order.start_at is not None:
        input_value = None if order.start_input is None else make_inline_value(order.start_input)
        yield order.start_at, StartExecution(execution_id=id_, input=input_value)
    names = list_signals(order.workflow)
    for number, at in enumerate(order.signals_at):
        name = names[number % len(names)]
        payload = make_inline_value(make_signal_payload(id_, f"s{number}"))
        signal = SendSignal(execution_id=id_, name=name, payload=payload, signal_id=f"s{number}")
        yield at, signal
        if order.repeats_signals:
            yield at + SIGNAL_REPEAT_DELAY_S, signal
    if order.cancel_at is not None:
        yield order.cancel_at, CancelExecution(execution_id=id_, is_forced=order.is_forced)
