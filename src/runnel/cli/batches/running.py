"""Runs a batch: by an engine of this process, or by the workers of a server."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

from runnel.cli import exits
from runnel.cli.attending import REFRESH_S, farewell
from runnel.cli.batches.feeding import BATCH_LABEL, Adopt, Batch, Feeder
from runnel.cli.batches.results import Results, print_summary, tell_failures, tell_how_to_go_on
from runnel.cli.batches.shown import open_batch_view
from runnel.cli.batches.tally import Outcome, Tally
from runnel.cli.hints import Hints
from runnel.cli.logs import show_logs
from runnel.cli.offspring import Offspring
from runnel.cli.opening import looking
from runnel.cli.unfinished import PAGE, UNFINISHED
from runnel.cli.words import compact, count
from runnel.core.ids import ExecutionId
from runnel.listing import all_headers
from runnel.ports.archive import ExecutionFilter
from runnel.ports.secrets import NoSecrets, Secrets
from runnel.runtime.build import build_engine
from runnel.runtime.engine import Engine
from runnel.runtime.hub import Happened, Started
from runnel.runtime.interrupts import SIGNAL_EXIT, hearing
from runnel.runtime.look import Look
from runnel.settings import Settings

STOPS_WATCHING = "stopping to submit and to watch; what was submitted goes on"


class Reporting(NamedTuple):
    """Where results go: `out` is stdout, `output` a file for those of each document."""

    hints: Hints
    out: TextIO
    output: Path | None
    as_json: bool


async def batch_here(batch: Batch, settings: Settings, reporting: Reporting) -> int:
    """The exit code; what another process of the same batch has left behind is gone on with."""
    engine = await build_engine(settings)
    try:
        await engine.claim_home()
        adopts = await _abandoned(engine, batch)
        family = _watch_children(engine)
        run = BatchRun(batch, engine, reporting, adopt=engine.adopt_if_free)
        with run.attended(farewell(settings), stop_now=engine.stops.now.set):
            async with asyncio.TaskGroup() as group:
                group.create_task(engine.run(adopts=adopts))
                try:
                    await run.feed()
                    await _until_tidy(engine, run, family)
                finally:
                    engine.stops.gently.set()
        return run.report()
    finally:
        await engine.backend.close()


async def batch_on_server(batch: Batch, settings: Settings, reporting: Reporting) -> int:
    """The exit code; whoever stops to watch leaves what was submitted to the workers."""
    async with looking(settings) as look:
        run = BatchRun(batch, look, reporting)
        with run.attended(STOPS_WATCHING):
            await run.feed()
        return run.report()


class BatchRun:
    """From the first document to the sum of all; `signal` is the number of the first one heard."""

    def __init__(
        self,
        batch: Batch,
        site: Engine | Look,
        reporting: Reporting,
        *,
        adopt: Adopt | None = None,
    ) -> None:
        self.signal: int | None = None
        self.tally = Tally(len(batch.documents), began_at=site.clock.now())
        self._batch = batch
        self._clock = site.clock
        self._secrets: Secrets = site.secrets if isinstance(site, Engine) else NoSecrets()
        self._reporting = reporting
        self._stop = asyncio.Event()
        self._left: Path | None = None
        self._results = Results(reporting.output, site.client)
        self._feeder = Feeder(
            batch,
            site.client,
            site.backend.archive,
            site.clock,
            hub=site.hub,
            tell=self._add,
            adopt=adopt,
        )
        self._view = open_batch_view(
            batch.name, self.tally, site.clock, in_flight=lambda: self._feeder.in_flight
        )

    @contextmanager
    def attended(self, said: str, stop_now: Callable[[], None] | None = None) -> Iterator[None]:
        """Shown on stderr; the first signal ends the feeding, the second calls `stop_now`."""

        def on_signal(number: int) -> None:
            if self.signal is None:
                self.signal = number
                self._view.say(said)
                self._stop.set()
            elif stop_now is not None:
                self._view.say("stopping at once")
                stop_now()

        show_logs(self._secrets.hide)
        self._view.say(f"{self._batch.name}: {count(self.tally.total, 'document')}")
        try:
            with hearing(on_signal, at_last=self._view.end):
                yield
            self._left = self._results.end(is_complete=not self._unfinished)
        finally:
            self._view.end()
            self._results.drop()

    async def feed(self) -> None:
        """Until all are over, or a signal was heard."""
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feeder.run(self._stop))
            while not feeding.done():
                self._view.refresh()
                await asyncio.wait([feeding], timeout=REFRESH_S)

    def report(self) -> int:
        """Says what came out, and returns the exit code."""
        now, name = self._clock.now(), self._batch.name
        if self._reporting.as_json:
            print(compact(self.tally.document(name, now)), file=self._reporting.out)
        else:
            print_summary(name, self.tally, now, self._reporting.out)
        self._reporting.out.flush()
        tell_failures(self.tally, self._reporting.hints)
        if self._unfinished:
            tell_how_to_go_on(self._left)
        if self.signal is not None and self._unfinished:
            return SIGNAL_EXIT + self.signal
        return exits.FAILED if self.tally.failures else exits.OK

    @property
    def _unfinished(self) -> int:
        return self.tally.total - self.tally.done

    async def _add(self, outcome: Outcome) -> None:
        self.tally.add(outcome)
        await self._results.add(outcome)


async def _abandoned(engine: Engine, batch: Batch) -> frozenset[int]:
    """Partitions with executions of this batch that no living process has."""
    store = engine.backend.store
    wanted = ExecutionFilter(
        states=UNFINISHED,
        workflow=batch.workflow.name,
        labels={BATCH_LABEL: batch.name},
        limit=PAGE,
    )
    found: set[int] = set()
    async for header in all_headers(engine.backend.archive, wanted):
        found.add(await store.route(header.execution_id))
    return frozenset([each for each in found if await store.observe(each) is None])


def _watch_children(engine: Engine) -> Offspring:
    family = Offspring()

    def see(what: Happened | Started) -> None:
        if isinstance(what, Happened):
            family.see(what)

    engine.hub.watch(see)
    return family


async def _until_tidy(engine: Engine, run: BatchRun, family: Offspring) -> None:
    """Children of an execution that failed may have to clean up after its end."""
    if run.signal is not None:
        return
    for outcome in run.tally.failures:
        execution_id = ExecutionId(outcome.header.execution_id)
        while family.has(execution_id):
            child = family.of(execution_id)[0]
            await engine.client.wait(child)
            family.end(child)
