"""Runs an engine until the executions that somebody waits for are over, or the user stops it."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TextIO

from runnel.app.engine import AdoptedPartitions, StopEvents
from runnel.app.follower import MissingProcessWarning, RemoteFollower
from runnel.app.process_signals import SIGNAL_EXIT_BASE, handle_signals
from runnel.cli import errors as exits
from runnel.cli.render.progress import ExecutionProgress, apply_events
from runnel.cli.render.progress_view import ProgressView, is_live_terminal, open_progress_view
from runnel.cli.render.sentences import describe_clean_up, describe_outcome
from runnel.cli.render.text import to_compact_json, to_pretty_json
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, format_location, open_client
from runnel.cli.session.unfinished import UnfinishedChildren
from runnel.client.protocol import Client
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.engine.store_retry import StoreRetry
from runnel.notify.event_bus import CommittedEvents, EventBus, StartedTask
from runnel.notify.feed_reader import FeedBroadcaster
from runnel.ports.clock import Clock, Secrets
from runnel.settings.model import Settings
from runnel.views.execution import build_execution_document

# Log lines of user code and warnings of the engine, on stderr and above the live view.

HANDLER_LOGGER = "runnel.handler"


def show_logs(hide: Callable[[str], str]) -> None:
    """Info and more from `ctx.logger`, warnings from everything else; `hide` takes secrets out."""
    logging.raiseExceptions = False  # a closed stderr is no reason to fail
    logging.getLogger().addHandler(_StderrHandler(hide))
    logging.getLogger(HANDLER_LOGGER).setLevel(logging.INFO)


class _StderrHandler(logging.Handler):
    """Looks stderr up for each line: while a live view is open, it is another one.

    An event that repeats itself, as a store that does not answer, is told once.
    """

    def __init__(self, hide: Callable[[str], str]) -> None:
        super().__init__()
        self._hide = hide
        self._last = ""

    def emit(self, record: logging.LogRecord) -> None:
        node = getattr(record, "node_id", None)
        fields: dict[str, object] = getattr(record, "fields", {})
        words = [self.format(record), *(f"{key}={fields[key]}" for key in fields)]
        told = self._hide(" ".join(words))
        prefix = record.levelname.lower() if node is None else f"{node}: {record.levelname.lower()}"
        is_repeated = told == self._last and hasattr(record, "event")
        self._last = told
        if is_repeated:
            return
        try:
            print(f"{prefix}: {told}", file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self.handleError(record)


REFRESH_S = 0.1


class FollowedEngine(Protocol):
    """An engine of this process, or whatever tells of the executions of others as it would."""

    name: str
    event_bus: EventBus
    clock: Clock
    stops: StopEvents
    secrets: Secrets

    @property
    def recovered(self) -> asyncio.Event: ...

    @property
    def client(self) -> Client: ...

    async def run(self, *, adopts: AdoptedPartitions = False) -> None: ...

    async def wait_until_final(self, execution_id: ExecutionId) -> None: ...


class FollowSession:
    """The executions that are waited for; `signal` is the number of the one that came first.

    `make_stop_message` is said then. An execution is over when it and its children are final, as
    far as they are run here: a child may have to clean up after its parent has ended.

    The first signal stops gently, the second cancels what still runs, the third ends the process
    without a word: what is stored is safe at any moment.
    """

    def __init__(self, engine: FollowedEngine, view: ProgressView, *, stop_message: str) -> None:
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
        """A child that was made before, of an execution that is followed."""
        self._children.add(child)

    @property
    def is_finished(self) -> bool:
        """Whether all are over, and no other will be added."""
        # The first one decides nearly always: what is over leaves `_unfinished`.
        return self._has_all and not any(map(self._is_unfinished, self._unfinished.values()))

    def list_unfinished(self) -> Sequence[ExecutionProgress]:
        """Those that are not over."""
        return [each for each in self._unfinished.values() if self._is_unfinished(each)]

    def _is_unfinished(self, progress: ExecutionProgress) -> bool:
        return not progress.is_final or self._children.has_any(ExecutionId(progress.execution_id))

    async def run(
        self,
        *,
        adopts: AdoptedPartitions = False,
        on_recovered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`recovered` is called when the engine has taken over what was free; it may `follow`."""
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
        self, adopts: AdoptedPartitions, on_recovered: Callable[[], Awaitable[None]] | None
    ) -> None:
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._following = [
                group.create_task(self._wait_until_finished(each))
                for each in self.followed.values()
            ]
            group.create_task(self._run_engine(adopts, ended))
            if on_recovered is not None:
                group.create_task(self._wait_for_recovery(on_recovered, ended))
            while not await self._engine.clock.wait(ended, REFRESH_S):
                self._view.refresh()
            for following in self._following:
                following.cancel()

    async def _wait_until_finished(self, progress: ExecutionProgress) -> None:
        """The store has the last word: another process may have ended the execution."""
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
        engine = self._engine
        await self._store_retry.run(lambda: engine.wait_until_final(execution_id), "wait")

    async def _run_engine(self, adopts: AdoptedPartitions, ended: asyncio.Event) -> None:
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
                return  # what the store said last is all there is to say
            if progress is not None:
                apply_events(progress, notification.at, notification.events)
        if progress is not None:
            self._view.show_changes(progress)

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
    """What an engine of this process does at the first signal."""
    return (
        f"stopping: what runs may finish within {settings.shutdown_timeout_s:g} s; "
        "interrupt again to stop at once"
    )


# What is said when executions have ended, or were left behind.


async def report_results(
    engine: FollowedEngine,
    follow_session: FollowSession,
    hints: CommandHints,
    *,
    out: TextIO,
    as_json: bool,
) -> int:
    """Results on `out`, sentences on stderr; returns the exit code."""
    for progress in follow_session.followed.values():
        if as_json:
            view = await engine.client.get(ExecutionId(progress.execution_id))
            print(to_compact_json(build_execution_document(view)), file=out)
        elif progress.is_final:
            await _print_result(engine, progress, hints, out)
    out.flush()
    if follow_session.signal is not None and not follow_session.is_finished:
        left = follow_session.list_unfinished()
        which = left[0].execution_id if len(left) == 1 else ""
        how = "it continues; watch" if hints.is_remote else "continue"
        _print_to_stderr(f"interrupted; {how} with: {hints.watch_again(which)}")
        return SIGNAL_EXIT_BASE + follow_session.signal
    return max(
        (exits.EXIT_CODE_BY_STATE[each.state] for each in follow_session.followed.values()),
        default=0,
    )


async def _print_result(
    engine: FollowedEngine, progress: ExecutionProgress, hints: CommandHints, out: TextIO
) -> None:
    if progress.state is ExecutionState.COMPLETED:
        if not is_live_terminal():  # the last frame has said so
            _print_to_stderr(describe_outcome(progress, engine.clock.now()))
        view = await engine.client.get(ExecutionId(progress.execution_id))
        if view.output is not None:
            print(to_pretty_json(view.output), file=out)
        return
    _print_to_stderr(describe_outcome(progress, engine.clock.now()))
    _print_to_stderr(f"see: {hints.show(progress.execution_id)}")
    _print_to_stderr(f"run again what failed: {hints.rerun(progress.execution_id)}")


def _print_to_stderr(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return  # nobody reads it: the result and the exit code still count


# Follows an execution that other processes run, until it is final or the user has seen enough.

WATCH_STOP_MESSAGE = "no longer watching; the execution continues"


async def follow_until_final(
    session: ClientSession,
    execution_id: ExecutionId,
    hints: CommandHints,
    *,
    first_message: str = "",
    out: TextIO,
    as_json: bool,
) -> int:
    """Says `first_message` first; returns the exit code, as that of a run in this process."""
    workflow = await session.load_workflow(execution_id)
    view = open_progress_view(session.clock, hints)
    if first_message:
        view.print_message(first_message)
    event_bus = EventBus()
    remote = RemoteFollower(
        session.client,
        session.clock,
        event_bus,
        FeedBroadcaster(session.client.changes, session.clock, event_bus),
        missing_process_warning=_build_missing_process_warning(session, workflow),
        warn=view.print_message,
    )
    attendance = FollowSession(remote, view, stop_message=WATCH_STOP_MESSAGE)
    # From its beginning, event by event; or, when it has ended meanwhile, as it ended.
    attendance.follow(ExecutionProgress(execution_id, workflow))
    await attendance.run()
    return await report_results(remote, attendance, hints, out=out, as_json=as_json)


def _build_missing_process_warning(
    session: ClientSession, workflow: Workflow
) -> MissingProcessWarning | None:
    if not session.has_workers:
        return None
    queues = frozenset(node.task_queue for node in workflow.nodes)
    return MissingProcessWarning(session.operations, session.clock, queues=queues)


# Begins an execution: run by this process, or handed over to the workers of a server.


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
    """Submits before the engine runs: so ids are known before anything can happen to them."""
    from runnel.app.wiring import build_engine

    engine = await build_engine(settings)
    try:
        await engine.backend.claim_home_partition(engine.name)
        begun = await start(engine.client)
        if not begun:
            return exits.OK
        view = open_progress_view(engine.clock, hints)
        attendance = FollowSession(engine, view, stop_message=make_stop_message(settings))
        for each in begun:
            attendance.follow(ExecutionProgress(each.execution_id, each.workflow))
        await attendance.run()
        return await report_results(engine, attendance, hints, out=out, as_json=as_json)
    finally:
        await engine.backend.close()


async def submit_and_follow(
    start: StartOne, settings: Settings, hints: CommandHints, *, out: TextIO, as_json: bool
) -> int:
    """To whoever runs executions there."""
    async with open_client(settings) as session:
        begun = await start(session.client)
        runner = "workers run it" if session.has_workers else "it runs there"
        lead = f"submitted to {format_location(settings)}: {runner}, this command only watches"
        return await follow_until_final(
            session, begun.execution_id, hints, first_message=lead, out=out, as_json=as_json
        )
