"""Runs an engine until the executions that somebody waits for are over, or the user stops it."""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TextIO

from runnel.app.engine import Adopts, Stops
from runnel.app.follower import Absence, Remote
from runnel.app.process_signals import SIGNAL_EXIT, hearing
from runnel.app.stores import Look
from runnel.cli import errors as exits
from runnel.cli.render.progress_view import View, is_live, open_view
from runnel.cli.render.sentences import clean_up, outcome
from runnel.cli.render.text import compact, pretty
from runnel.cli.session.hints import Hints
from runnel.cli.session.progress import Offspring, Progress, fold
from runnel.client.store_client import Client
from runnel.core.execution import Execution
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.core.states import ExecutionState
from runnel.core.workflow import Workflow
from runnel.engine.liveness import Patience
from runnel.notify.hub import Happened, Hub, Started
from runnel.ports.archive import Archive
from runnel.ports.clock import Clock, Secrets
from runnel.settings.model import Settings
from runnel.views.execution import document_of

# Log lines of user code and warnings of the engine, on stderr and above the live view.

HANDLER_LOGGER = "runnel.handler"


def show_logs(hide: Callable[[str], str]) -> None:
    """Info and more from `ctx.logger`, warnings from everything else; `hide` takes secrets out."""
    logging.raiseExceptions = False  # a closed stderr is no reason to fail
    logging.getLogger().addHandler(_Stderr(hide))
    logging.getLogger(HANDLER_LOGGER).setLevel(logging.INFO)


class _Stderr(logging.Handler):
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


class Attended(Protocol):
    """An engine of this process, or whatever tells of the executions of others as it would."""

    name: str
    client: Client
    hub: Hub
    clock: Clock
    stops: Stops
    secrets: Secrets

    @property
    def recovered(self) -> asyncio.Event: ...

    async def run(self, *, adopts: Adopts = False) -> None: ...


class Attendance:
    """The executions that are waited for; `signal` is the number of the one that came first.

    `farewell` is said then. An execution is over when it and its children are final, as far as
    they are run here: a child may have to clean up after its parent has ended.

    The first signal stops gently, the second cancels what still runs, the third ends the process
    without a word: what is stored is safe at any moment.
    """

    def __init__(self, engine: Attended, view: View, *, farewell: str) -> None:
        self.signal: int | None = None
        self.followed: dict[str, Progress] = {}
        self._engine = engine
        self._view = view
        self._farewell = farewell
        self._signals = 0
        self._is_complete = True
        self._patience = Patience(engine.clock, engine.hub, engine.name)
        self._offspring = Offspring()
        self._under_way: dict[str, Progress] = {}
        self._group: asyncio.TaskGroup | None = None
        self._following: list[asyncio.Task[None]] = []

    def follow(self, progress: Progress) -> None:
        self.followed[progress.execution_id] = progress
        self._under_way[progress.execution_id] = progress
        self._view.add(progress)
        if self._group is not None:
            self._following.append(self._group.create_task(self._until_over(progress)))

    def expect(self, child: ExecutionId) -> None:
        """A child that was made before, of an execution that is followed."""
        self._offspring.add(child)

    @property
    def is_over(self) -> bool:
        """Whether all are over, and no other will be added."""
        # The first one decides nearly always: what is over leaves `_under_way`.
        return self._is_complete and not any(map(self._is_under_way, self._under_way.values()))

    def left(self) -> Sequence[Progress]:
        """Those that are not over."""
        return [each for each in self._under_way.values() if self._is_under_way(each)]

    def _is_under_way(self, progress: Progress) -> bool:
        return not progress.is_final or self._offspring.has(ExecutionId(progress.execution_id))

    async def run(
        self, *, adopts: Adopts = False, recovered: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`recovered` is called when the engine has taken over what was free; it may `follow`."""
        show_logs(self._engine.secrets.hide)
        self._is_complete = recovered is None
        end_watch = self._engine.hub.watch(self._see)
        with hearing(self._on_signal, at_last=self._view.end):
            try:
                await self._run(adopts, recovered)
            finally:
                end_watch()
                self._view.end()

    async def _run(self, adopts: Adopts, recovered: Callable[[], Awaitable[None]] | None) -> None:
        ended = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            self._group = group
            self._following = [
                group.create_task(self._until_over(each)) for each in self.followed.values()
            ]
            group.create_task(self._work(adopts, ended))
            if recovered is not None:
                group.create_task(self._after_recovery(recovered, ended))
            while not await self._engine.clock.wait(ended, REFRESH_S):
                self._view.refresh()
            for following in self._following:
                following.cancel()

    async def _until_over(self, progress: Progress) -> None:
        """The store has the last word: another process may have ended the execution."""
        client, execution_id = self._engine.client, ExecutionId(progress.execution_id)
        await self._until_final(execution_id)
        if not progress.is_final:
            ended = await self._patience.until_done(lambda: client.load(execution_id), "load")
            progress.catch_up(ended)
            self._view.changed(progress)
        children = self._offspring.of(execution_id)
        if children:
            self._view.say(clean_up(progress, children))
        while children:
            await self._until_final(children[0])
            self._offspring.end(children[0])
            children = self._offspring.of(execution_id)
        self._under_way.pop(execution_id)
        self._stop_if_over()

    async def _until_final(self, execution_id: ExecutionId) -> None:
        client = self._engine.client
        await self._patience.until_done(lambda: client.wait(execution_id), "wait")

    async def _work(self, adopts: Adopts, ended: asyncio.Event) -> None:
        try:
            await self._engine.run(adopts=adopts)
        finally:
            ended.set()

    async def _after_recovery(
        self, recovered: Callable[[], Awaitable[None]], ended: asyncio.Event
    ) -> None:
        while not await self._engine.clock.wait(self._engine.recovered, REFRESH_S):
            if ended.is_set():
                return
        await recovered()
        self._is_complete = True
        self._stop_if_over()

    def _see(self, what: Happened | Started) -> None:
        if isinstance(what, Started):
            progress = self.followed.get(what.token.execution_id)
            if progress is not None and what.token.item == NO_ITEM:
                progress.start(what.token.node_id, what.token.attempt, what.at)
        else:
            self._offspring.see(what)
            progress = self.followed.get(what.execution_id)
            if progress is not None and progress.is_final:
                return  # what the store said last is all there is to say
            if progress is not None:
                fold(progress, what.at, what.events)
        if progress is not None:
            self._view.changed(progress)

    def _stop_if_over(self) -> None:
        if self.is_over:
            self._engine.stops.gently.set()

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals == 1:
            self.signal = number
            self._view.say(self._farewell)
            self._engine.stops.gently.set()
        else:
            self._view.say("stopping at once")
            self._engine.stops.now.set()


def farewell(settings: Settings) -> str:
    """What an engine of this process does at the first signal."""
    return (
        f"stopping: what runs may finish within {settings.shutdown_timeout_s:g} s; "
        "interrupt again to stop at once"
    )


# What is said when executions have ended, or were left behind.


async def report(
    engine: Attended, attendance: Attendance, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    """Results on `out`, sentences on stderr; returns the exit code."""
    for progress in attendance.followed.values():
        if as_json:
            view = await engine.client.get(ExecutionId(progress.execution_id))
            print(compact(document_of(view)), file=out)
        elif progress.is_final:
            await _tell(engine, progress, hints, out)
    out.flush()
    if attendance.signal is not None and not attendance.is_over:
        left = attendance.left()
        which = left[0].execution_id if len(left) == 1 else ""
        how = "it goes on; watch" if hints.is_remote else "go on"
        _say(f"interrupted; {how} with: {hints.return_to(which)}")
        return SIGNAL_EXIT + attendance.signal
    return max((exits.OF_STATE[each.state] for each in attendance.followed.values()), default=0)


async def _tell(engine: Attended, progress: Progress, hints: Hints, out: TextIO) -> None:
    if progress.state is ExecutionState.COMPLETED:
        if not is_live():  # the last frame has said so
            _say(outcome(progress, engine.clock.now()))
        view = await engine.client.get(ExecutionId(progress.execution_id))
        if view.output is not None:
            print(pretty(view.output), file=out)
        return
    _say(outcome(progress, engine.clock.now()))
    _say(f"see: {hints.show(progress.execution_id)}")
    _say(f"run again what failed: {hints.rerun(progress.execution_id)}")


def _say(text: str) -> None:
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        return  # nobody reads it: the result and the exit code still count


# Follows an execution that other processes run, until it is final or the user has seen enough.

FAREWELL = "stopping to watch; the execution goes on"


async def onlook(
    look: Look,
    execution_id: ExecutionId,
    settings: Settings,
    hints: Hints,
    *,
    lead: str = "",
    out: TextIO,
    as_json: bool,
) -> int:
    """Says `lead` first; returns the exit code, as that of a run in this process."""
    execution = await look.client.load(execution_id)
    view = open_view(look.clock, hints)
    if lead:
        view.say(lead)
    absence = _absence(look, execution, settings) if look.has_workers else None
    remote = Remote(look, absence=absence, say=view.say)
    attendance = Attendance(remote, view, farewell=FAREWELL)
    # From its beginning, event by event; or, when it has ended meanwhile, as it ended.
    attendance.follow(Progress(execution_id, execution.graph.workflow))
    await attendance.run()
    return await report(remote, attendance, hints, out=out, as_json=as_json)


def _absence(look: Look, execution: Execution, settings: Settings) -> Absence:
    queues = frozenset(node.task_queue for node in execution.graph.workflow.nodes)
    return Absence(look.backend, look.clock, settings, queues=queues)


# Begins an execution: run by this process, or handed over to the workers of a server.


class Begun(NamedTuple):
    execution_id: ExecutionId
    workflow: Workflow


Begin = Callable[[Client], Awaitable[Begun]]
BeginSeveral = Callable[[Client, Archive], Awaitable[Sequence[Begun]]]


async def run_here(
    begin: Begin, settings: Settings, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    async def begin_one(client: Client, _archive: Archive) -> Sequence[Begun]:
        return [await begin(client)]

    return await run_several_here(begin_one, settings, hints, out=out, as_json=as_json)


async def run_several_here(
    begin: BeginSeveral, settings: Settings, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    """Submits before the engine runs: so ids are known before anything can happen to them."""
    from runnel.app.wiring import build_engine
    from runnel.cli.render.progress_view import open_view
    from runnel.cli.session.progress import Progress

    engine = await build_engine(settings)
    try:
        await engine.backend.claim_home(engine.name)
        begun = await begin(engine.client, engine.backend.archive)
        if not begun:
            return exits.OK
        view = open_view(engine.clock, hints)
        attendance = Attendance(engine, view, farewell=farewell(settings))
        for each in begun:
            attendance.follow(Progress(each.execution_id, each.workflow))
        await attendance.run()
        return await report(engine, attendance, hints, out=out, as_json=as_json)
    finally:
        await engine.backend.close()


async def hand_over(
    begin: Begin, settings: Settings, hints: Hints, *, out: TextIO, as_json: bool
) -> int:
    """To whoever runs executions there."""
    from runnel.cli.session.open_client import looking, place_of

    async with looking(settings) as look:
        begun = await begin(look.client)
        who = "workers run it" if look.has_workers else "it runs there"
        lead = f"submitted to {place_of(settings)}: {who}, this command only watches"
        return await onlook(
            look, begun.execution_id, settings, hints, lead=lead, out=out, as_json=as_json
        )
