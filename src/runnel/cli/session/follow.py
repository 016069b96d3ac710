"""Follows an execution that other processes run, until it is final or the user interrupts."""

import asyncio
from collections.abc import Callable
from typing import TextIO

from runnel.app.process_signals import handle_signals
from runnel.cli.render.progress import ExecutionProgress, apply_events
from runnel.cli.render.progress_view import ProgressView, open_progress_view
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import (
    ClientSession,
    format_location,
    load_workflow,
    open_client,
)
from runnel.cli.session.run_locally import (
    REFRESH_S,
    Interruption,
    StartOne,
    report_results,
    show_logs,
)
from runnel.client.operations import to_queue_key
from runnel.client.protocol import Operations, find_owner
from runnel.core.ids import ExecutionId
from runnel.core.workflow import Workflow
from runnel.engine.store_retry import StoreRetry
from runnel.ports.clock import Clock, NoSecrets
from runnel.settings.model import Settings
from runnel.telemetry.logs import LogTelemetry
from runnel.views.execution import decode_event

STOP_MESSAGE = "no longer watching; the execution continues"


class FollowSession:
    """Reads the events of an execution that other processes run, and shows its progress.

    `warning` is None if the execution needs no worker process. `signal` is the number of the first
    process signal, such as SIGINT.
    """

    def __init__(
        self,
        session: ClientSession,
        progress: ExecutionProgress,
        view: ProgressView,
        warning: "MissingProcessWarning | None" = None,
    ) -> None:
        self.signal: int | None = None
        self._client = session.client
        self._clock = session.clock
        self._progress = progress
        self._execution_id = ExecutionId(progress.execution_id)
        self._view = view
        self._warning = warning
        self._store_retry = StoreRetry(session.clock, LogTelemetry(), "watch")
        self._events_seen = 0
        self._last_event_at = 0.0
        self._ended = asyncio.Event()

    @property
    def interruption(self) -> Interruption | None:
        """Returns the interruption if a signal came before the end of the execution, else None."""
        if self.signal is None or self._progress.is_final:
            return None
        return Interruption(self.signal, [self._progress])

    async def run(self) -> None:
        show_logs(NoSecrets().redact)
        self._view.add(self._progress)
        with handle_signals(self._on_signal, before_exit=self._view.close):
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(self._follow()),
                        group.create_task(self._warn_while_stalled()),
                    ]
                    while not await self._clock.wait(self._ended, REFRESH_S):
                        self._view.show_changes(self._progress)
                        self._view.refresh()
                    for task in tasks:
                        task.cancel()
            finally:
                self._view.show_changes(self._progress)
                self._view.close()

    async def _follow(self) -> None:
        """Follows the execution until it is final.

        An execution that could not be created has no events. So its result is read from the store.
        """
        await self._store_retry.run(self._apply_events, "load")
        if not self._progress.is_final:
            view = await self._store_retry.run(lambda: self._client.get(self._execution_id), "load")
            self._progress.finish(view)
        self._view.show_changes(self._progress)
        self._ended.set()

    async def _apply_events(self) -> None:
        """Applies the events to the progress; a second call continues after the last event.

        The events of one commit have the same time. The view shows these events together, so that a
        map whose items end in one commit prints one line. `run` shows the last events of a history.
        """
        async for event in self._client.follow(self._execution_id, after=self._events_seen):
            if event.at != self._last_event_at:
                self._view.show_changes(self._progress)
                self._last_event_at = event.at
            self._events_seen += 1
            apply_events(self._progress, event.at, [decode_event(event)])

    async def _warn_while_stalled(self) -> None:
        warning, events_seen = self._warning, 0
        while warning is not None:
            await self._clock.sleep(CHECK_INTERVAL_S)
            if self._events_seen == events_seen:
                await self._store_retry.run(
                    lambda: warning.check(self._execution_id, self._view.print_message), "check"
                )
            events_seen = self._events_seen

    def _on_signal(self, number: int) -> None:
        if self.signal is None:
            self.signal = number
            self._view.print_message(STOP_MESSAGE)
            self._ended.set()


async def follow_until_final(
    session: ClientSession,
    execution_id: ExecutionId,
    hints: CommandHints,
    *,
    first_message: str = "",
    out: TextIO,
    as_json: bool,
) -> int:
    """Follows an execution and prints its result; returns the same exit code as `runnel run`."""
    workflow = await load_workflow(session.client, execution_id)
    view = open_progress_view(session.clock, hints)
    if first_message:
        view.print_message(first_message)
    progress = ExecutionProgress(execution_id, workflow)
    warning = _build_missing_process_warning(session, workflow)
    follow_session = FollowSession(session, progress, view, warning)
    await follow_session.run()
    return await report_results(
        session.client,
        session.clock,
        [progress],
        hints,
        interruption=follow_session.interruption,
        out=out,
        as_json=as_json,
    )


def _build_missing_process_warning(
    session: ClientSession, workflow: Workflow
) -> "MissingProcessWarning | None":
    if not session.has_workers:
        return None
    queues = frozenset(node.task_queue for node in workflow.nodes)
    return MissingProcessWarning(session.operations, session.clock, queues=queues)


async def submit_and_follow(
    start: StartOne, settings: Settings, hints: CommandHints, *, out: TextIO, as_json: bool
) -> int:
    """Submits an execution to a Runnel or Redis server, follows it, and returns the exit code."""
    async with open_client(settings) as session:
        started = await start(session.client)
        runner = "workers run it" if session.has_workers else "it runs there"
        message = f"submitted to {format_location(settings)}: {runner}, this command only watches"
        return await follow_until_final(
            session, started.execution_id, hints, first_message=message, out=out, as_json=as_json
        )


# Warns about processes that an execution needs and that do not run.

# A process may need this time to start, so an earlier warning could be wrong.
GRACE_S = 2.0
CHECK_INTERVAL_S = 1.0

NO_ORCHESTRATOR = "no orchestrator is alive: start one with 'runnel orchestrator'"
NO_WORKER = "no worker is alive: start one with 'runnel worker'"
QUEUE_NOT_SERVED = "no living worker takes tasks of the queue"
_ALIVE = ("alive", "draining")


class MissingProcessWarning:
    """Warns about processes that an execution needs and that do not run, after 2 s.

    Each missing process is reported once, and again if it ran in between. `queues` are the queues
    of the execution's tasks.
    """

    def __init__(self, operations: Operations, clock: Clock, *, queues: frozenset[str]) -> None:
        self._queues = queues
        self._operations = operations
        self._clock = clock
        self._created_at = clock.monotonic()
        self._checked_at = float("-inf")
        self._reported: frozenset[str] = frozenset()

    async def check(self, execution_id: ExecutionId, warn: Callable[[str], None]) -> None:
        """Calls `warn` for missing processes; inspects the servers at most once a second.

        Call this method while no event arrives.
        """
        now = self._clock.monotonic()
        if now - self._checked_at < CHECK_INTERVAL_S:
            return
        self._checked_at = now
        missing = await self._find_missing(execution_id)
        if now - self._created_at < GRACE_S:
            return
        for sentence in missing:
            if sentence not in self._reported:
                warn(sentence)
        self._reported = frozenset(missing)

    async def _find_missing(self, execution_id: ExecutionId) -> list[str]:
        owner = await find_owner(self._operations, execution_id)
        workers = [view for view in await self._operations.workers() if view.status in _ALIVE]
        missing = [] if owner is not None else [NO_ORCHESTRATOR]
        if not workers:
            return [*missing, NO_WORKER]
        if all(worker.host is None for worker in workers):
            return missing  # no worker has reported its queues yet
        unserved = {
            to_queue_key(queue.queue)
            for queue in await self._operations.queues()
            if queue.waiting and not queue.workers
        }
        return [
            *missing,
            *(f"{QUEUE_NOT_SERVED} '{queue}'" for queue in sorted(self._queues & unserved)),
        ]
