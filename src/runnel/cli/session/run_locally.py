"""Runs an engine in this process until its executions end or a signal arrives.

The module also prints results, for executions that other processes run as well.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from runnel.app.process_signals import SIGNAL_EXIT_BASE, handle_signals
from runnel.cli.errors import EXIT_CODE_BY_STATE, OK
from runnel.cli.render.progress import ExecutionProgress, apply_events
from runnel.cli.render.progress_view import ProgressView, is_live_terminal, open_progress_view
from runnel.cli.render.sentences import describe_clean_up, describe_outcome, describe_undone
from runnel.cli.render.text import to_compact_json, to_pretty_json
from runnel.cli.session.hints import CommandHints
from runnel.cli.streams import print_to_stderr
from runnel.client.protocol import Client, load_whole_output
from runnel.core.events import ExecutionCreated, ExecutionFinished
from runnel.core.ids import NO_ITEM, ExecutionId, get_root_id
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.engine.store_retry import StoreRetry
from runnel.notify.event_bus import CommittedEvents, StartedTask
from runnel.ports.clock import Clock
from runnel.settings.model import Settings
from runnel.views import build_document

if TYPE_CHECKING:
    from runnel.app.embedded_engine import AdoptedPartitions, EmbeddedEngine

# Log lines of user code and warnings of the engine go to stderr, above the live view.

HANDLER_LOGGER = "runnel.handler"


def show_logs(hide: Callable[[str], str]) -> None:
    """Shows info lines of `ctx.logger` and all warnings on stderr; `hide` removes secrets."""
    logging.raiseExceptions = False  # a closed stderr must not end the command
    logging.getLogger().addHandler(_StderrHandler(hide))
    logging.getLogger(HANDLER_LOGGER).setLevel(logging.INFO)


class _StderrHandler(logging.Handler):
    """A log handler that writes to the current `sys.stderr`, which an open live view replaces.

    A repeated event, such as a store that does not respond, is printed once.
    """

    def __init__(self, hide: Callable[[str], str]) -> None:
        super().__init__()
        self._hide = hide
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        node = getattr(record, "node_id", None)
        line = self._hide(self.format(record))
        prefix = record.levelname.lower() if node is None else f"{node}: {record.levelname.lower()}"
        is_repeated = line == self._last and hasattr(record, "event")
        self._last = line
        if is_repeated:
            return
        try:
            print(f"{prefix}: {line}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.handleError(record)


REFRESH_S = 0.1


class UnfinishedChildren:
    """The unfinished child executions that the engine of this process runs, by root execution."""

    def __init__(self) -> None:
        self._unfinished: dict[ExecutionId, dict[ExecutionId, None]] = {}

    def add(self, child: ExecutionId) -> None:
        self._unfinished.setdefault(get_root_id(child), {})[child] = None

    def remove(self, child: ExecutionId) -> None:
        root = get_root_id(child)
        children = self._unfinished.get(root, {})
        children.pop(child, None)
        if not children:
            self._unfinished.pop(root, None)

    def update(self, notification: CommittedEvents) -> None:
        execution_id = ExecutionId(notification.execution_id)
        if get_root_id(execution_id) == execution_id:
            return
        for event in notification.events:
            if isinstance(event, ExecutionCreated):
                self.add(execution_id)
            elif isinstance(event, ExecutionFinished):
                self.remove(execution_id)

    def has_any(self, execution_id: ExecutionId) -> bool:
        """Returns True if the tree of this execution has unfinished children."""
        return get_root_id(execution_id) in self._unfinished

    def list_children(self, execution_id: ExecutionId) -> Sequence[ExecutionId]:
        """Lists the unfinished children of the execution's tree, oldest first."""
        return list(self._unfinished.get(get_root_id(execution_id), ()))


class LocalSession:
    """Runs an engine in this process and shows the progress of its executions.

    An execution is finished when the execution and its children in this process are final: a child
    may run clean-up nodes after its parent has ended.

    After the first signal, the session prints `stop_message` and drains the engine; `signal` is the
    number of that signal. The second signal cancels the running tasks. The third signal ends the
    process at once, which loses no stored data.
    """

    def __init__(self, engine: "EmbeddedEngine", view: ProgressView, *, stop_message: str) -> None:
        self.signal: int | None = None
        self.followed: dict[str, ExecutionProgress] = {}
        self._engine = engine
        self._view = view
        self._stop_message = stop_message
        self._signal_count = 0
        self._has_all = True
        self._store_retry = StoreRetry(engine.clock, engine.event_bus, engine.name)
        self._children = UnfinishedChildren()
        self._unfinished: dict[str, ExecutionProgress] = {}
        self._group: asyncio.TaskGroup | None = None
        self._following: list[asyncio.Task[None]] = []

    def follow(self, progress: ExecutionProgress) -> None:
        self.followed[progress.execution_id] = progress
        self._unfinished[progress.execution_id] = progress
        self._view.add(progress)
        if self._group is not None:
            self._following.append(self._group.create_task(self._wait_until_finished(progress)))

    def add_child(self, child: ExecutionId) -> None:
        """Adds a child, created by an earlier process, of an execution that the session follows."""
        self._children.add(child)

    @property
    def is_finished(self) -> bool:
        """Returns True if all executions are finished, and no other execution will be added."""
        return self._has_all and not any(map(self._is_unfinished, self._unfinished.values()))

    @property
    def interruption(self) -> "Interruption | None":
        """Returns the interruption if a signal came before the end of the executions, else None."""
        if self.signal is None or self.is_finished:
            return None
        unfinished = [
            progress for progress in self._unfinished.values() if self._is_unfinished(progress)
        ]
        return Interruption(self.signal, unfinished)

    def _is_unfinished(self, progress: ExecutionProgress) -> bool:
        return not progress.is_final or self._children.has_any(ExecutionId(progress.execution_id))

    async def run(
        self,
        *,
        adopts: "AdoptedPartitions" = False,
        on_recovered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Runs the engine until the executions are finished, or until a signal.

        Calls `on_recovered` once the engine has taken over the free partitions.
        """
        show_logs(self._engine.secrets.redact)
        self._has_all = on_recovered is None
        end_watch = self._engine.event_bus.watch(self._on_notification)
        with handle_signals(self._on_signal, before_exit=self._view.close):
            try:
                await self._run(adopts, on_recovered)
            finally:
                end_watch()
                self._view.close()

    async def _run(
        self, adopts: "AdoptedPartitions", on_recovered: Callable[[], Awaitable[None]] | None
    ) -> None:
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._following = [
                group.create_task(self._wait_until_finished(progress))
                for progress in self.followed.values()
            ]
            group.create_task(self._run_engine(adopts, ended))
            if on_recovered is not None:
                group.create_task(self._wait_for_recovery(on_recovered, ended))
            while not await self._engine.clock.wait(ended, REFRESH_S):
                self._view.refresh()
            for following in self._following:
                following.cancel()

    async def _wait_until_finished(self, progress: ExecutionProgress) -> None:
        """Waits for an execution and its children; reads the result from the store.

        Notifications of this process are not enough: another process may have ended the execution.
        """
        client, execution_id = self._engine.client, ExecutionId(progress.execution_id)
        await self._wait_until_final(execution_id)
        if not progress.is_final:
            view = await self._store_retry.run(lambda: client.get(execution_id), "load")
            progress.finish(view)
            self._view.show_changes(progress)
        children = self._children.list_children(execution_id)
        if children:
            self._view.print_message(describe_clean_up(progress, children))
        while children:
            await self._wait_until_final(children[0])
            self._children.remove(children[0])
            children = self._children.list_children(execution_id)
        self._unfinished.pop(execution_id)
        self._stop_if_finished()

    async def _wait_until_final(self, execution_id: ExecutionId) -> None:
        client = self._engine.client
        await self._store_retry.run(lambda: client.wait_for_end(execution_id), "wait")

    async def _run_engine(self, adopts: "AdoptedPartitions", ended: asyncio.Event) -> None:
        try:
            await self._engine.run(adopts=adopts)
        finally:
            ended.set()

    async def _wait_for_recovery(
        self, on_recovered: Callable[[], Awaitable[None]], ended: asyncio.Event
    ) -> None:
        while not await self._engine.clock.wait(self._engine.recovered, REFRESH_S):
            if ended.is_set():
                return
        await on_recovered()
        self._has_all = True
        self._stop_if_finished()

    def _on_notification(self, notification: CommittedEvents | StartedTask) -> None:
        if isinstance(notification, StartedTask):
            progress = self.followed.get(notification.token.execution_id)
            if progress is not None and notification.token.item == NO_ITEM:
                progress.start(
                    notification.token.node_id, notification.token.attempt, notification.at
                )
        else:
            self._children.update(notification)
            progress = self.followed.get(notification.execution_id)
            if progress is not None and progress.is_final:
                return  # the final state was read from the store already
            if progress is not None:
                apply_events(progress, notification.at, notification.events)
        if progress is not None:
            self._view.show_changes(progress)

    async def report(self, hints: CommandHints, *, out: TextIO, as_json: bool) -> int:
        """Prints the results of the executions; returns the exit code."""
        return await report_results(
            self._engine.client,
            self._engine.clock,
            self.followed.values(),
            hints,
            interruption=self.interruption,
            out=out,
            as_json=as_json,
        )

    def _stop_if_finished(self) -> None:
        if self.is_finished:
            self._engine.stops.drain.set()

    def _on_signal(self, number: int) -> None:
        self._signal_count += 1
        if self._signal_count == 1:
            self.signal = number
            self._view.print_message(self._stop_message)
            self._engine.stops.drain.set()
        else:
            self._view.print_message("stopping at once")
            self._engine.stops.abort.set()


def make_stop_message(settings: Settings) -> str:
    """Returns the message that a session prints after the first signal."""
    return (
        f"stopping: running tasks may finish within {settings.shutdown_timeout_s:g} s; "
        "interrupt again to stop at once"
    )


# Results of executions that have ended, and a hint for unfinished executions.


class Interruption(NamedTuple):
    """The process signal that ended a session, and the executions that were unfinished then."""

    signal: int
    unfinished: Sequence[ExecutionProgress]


async def report_results(
    client: Client,
    clock: Clock,
    followed: Collection[ExecutionProgress],
    hints: CommandHints,
    *,
    interruption: Interruption | None,
    out: TextIO,
    as_json: bool,
) -> int:
    """Prints results on `out`, and errors and hints on stderr; returns the exit code."""
    for progress in followed:
        if as_json:
            view = await client.get(ExecutionId(progress.execution_id))
            view = await load_whole_output(client, view)
            print(to_compact_json(build_document(view)), file=out)
        elif progress.is_final:
            await _print_result(client, clock, progress, hints, out)
    out.flush()
    if interruption is None:
        codes = [EXIT_CODE_BY_STATE[progress.state] for progress in followed]
        return max(codes, default=OK)
    unfinished = interruption.unfinished
    execution_id = unfinished[0].execution_id if len(unfinished) == 1 else ""
    action = "the execution continues; watch it" if hints.is_remote else "continue"
    print_to_stderr(f"interrupted; {action} with: {hints.watch_again(execution_id)}")
    return SIGNAL_EXIT_BASE + interruption.signal


async def _print_result(
    client: Client, clock: Clock, progress: ExecutionProgress, hints: CommandHints, out: TextIO
) -> None:
    if progress.state is ExecutionState.COMPLETED:
        if not is_live_terminal():  # the last frame of a live view shows the outcome
            print_to_stderr(describe_outcome(progress, clock.now()))
        view = await client.get(ExecutionId(progress.execution_id))
        view = await load_whole_output(client, view)
        if view.output is not None:
            print(to_pretty_json(view.output), file=out)
        return
    print_to_stderr(describe_outcome(progress, clock.now()))
    print_to_stderr(f"see: {hints.show(progress.execution_id)}")
    undone = describe_undone(progress)
    if undone:
        command = hints.rerun(progress.execution_id, is_whole=True)
        print_to_stderr(f"{undone}; run every node again: {command}")
    else:
        print_to_stderr(f"run the failed nodes again: {hints.rerun(progress.execution_id)}")


# Executions that this process starts and runs.


class StartedExecution(NamedTuple):
    execution_id: ExecutionId
    workflow: Workflow


StartOne = Callable[[Client], Awaitable[StartedExecution]]
StartMany = Callable[[Client], Awaitable[Sequence[StartedExecution]]]


async def run_locally(
    start: StartOne, settings: Settings, hints: CommandHints, *, out: TextIO, as_json: bool
) -> int:
    async def start_one(client: Client) -> Sequence[StartedExecution]:
        return [await start(client)]

    return await run_many_locally(start_one, settings, hints, out=out, as_json=as_json)


async def run_many_locally(
    start: StartMany, settings: Settings, hints: CommandHints, *, out: TextIO, as_json: bool
) -> int:
    """Starts executions, runs them in this process, and returns the exit code.

    Submits before the engine runs, so that the session knows the ids before the first event.
    """
    from runnel.app.wiring import build_engine

    engine = await build_engine(settings)
    try:
        await engine.backend.claim_home_partition(engine.name)
        executions = await start(engine.client)
        if not executions:
            return OK
        view = open_progress_view(engine.clock, hints)
        session = LocalSession(engine, view, stop_message=make_stop_message(settings))
        for started in executions:
            session.follow(ExecutionProgress(started.execution_id, started.workflow))
        await session.run()
        return await session.report(hints, out=out, as_json=as_json)
    finally:
        await engine.backend.close()
