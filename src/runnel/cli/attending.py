"""Runs an engine until the executions that somebody waits for are over, or the user stops it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from runnel.cli.folding import fold
from runnel.cli.logs import show_logs
from runnel.cli.offspring import Offspring
from runnel.cli.progress import Progress
from runnel.cli.sentences import clean_up
from runnel.cli.watching import View
from runnel.client import Client
from runnel.core.ids import NO_ITEM, ExecutionId
from runnel.engine.patience import Patience
from runnel.ports.clock import Clock
from runnel.ports.secrets import Secrets
from runnel.runtime.engine import Adopts, Stops
from runnel.runtime.hub import Happened, Hub, Started
from runnel.runtime.interrupts import hearing
from runnel.settings import Settings

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
