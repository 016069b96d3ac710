"""Runs a batch: by an engine of this process, or by the workers of a server."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from runnel.app.engine import Engine
from runnel.app.process_signals import SIGNAL_EXIT, hearing
from runnel.app.stores import Look
from runnel.app.wiring import build_engine
from runnel.cli import errors as exits
from runnel.cli.render.progress_view import is_live
from runnel.cli.render.text import LOOKS, compact, count, duration
from runnel.cli.session.batch_feeder import BATCH_LABEL, Adopt, Batch, Feeder, Outcome, Tally
from runnel.cli.session.batch_output import Results, print_summary, tell_failures, tell_how_to_go_on
from runnel.cli.session.follow import REFRESH_S, farewell, show_logs
from runnel.cli.session.hints import Hints
from runnel.cli.session.open_client import looking
from runnel.cli.session.progress import Offspring
from runnel.cli.session.takeover import PAGE, UNFINISHED
from runnel.client.listing import all_headers
from runnel.core.ids import ExecutionId
from runnel.notify.hub import Happened, Started
from runnel.ports.archive import ExecutionFilter
from runnel.ports.clock import Clock, NoSecrets, Secrets
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from rich.text import Text


# Shows how far a batch is: by two lines that are redrawn on a terminal, or a line now and then.

TELL_EVERY_S = 5.0


class BatchView(Protocol):
    def refresh(self) -> None: ...

    def say(self, text: str) -> None: ...

    def end(self) -> None: ...


def open_batch_view(
    name: str, tally: Tally, clock: Clock, *, in_flight: Callable[[], int]
) -> BatchView:
    """On stderr, because stdout is for the result."""
    if is_live():
        return LiveBatchView(name, tally, clock, in_flight=in_flight)
    return PlainBatchView(tally, clock)


def pace(tally: Tally, now: float) -> str:
    """`12 of 2,000 documents, 9,412 per hour, 12m 40s left, 2 failed`."""
    parts = [f"{tally.done:,} of {count(tally.total, 'document')}"]
    if tally.done_now:
        parts.append(f"{tally.per_hour(now):,.0f} per hour")
    left_s = tally.left_s(now)
    if left_s is not None and tally.done < tally.total:
        parts.append(f"{duration(left_s)} left")
    if tally.failures:
        parts.append(f"{len(tally.failures):,} failed")
    return ", ".join(parts)


class PlainBatchView:
    def __init__(self, tally: Tally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._told_at = clock.monotonic()
        self._told = ""

    def refresh(self) -> None:
        if self._clock.monotonic() - self._told_at >= TELL_EVERY_S:
            self._told_at = self._clock.monotonic()
            self.say(pace(self._tally, self._clock.now()))

    def say(self, text: str) -> None:
        if text == self._told:
            return
        self._told = text
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            return  # nobody looks: the batch goes on

    def end(self) -> None:
        """Nothing to close."""


class LiveBatchView:
    def __init__(
        self, name: str, tally: Tally, clock: Clock, *, in_flight: Callable[[], int]
    ) -> None:
        from runnel.cli.render.live_frames import LiveLines

        self._name = name
        self._tally = tally
        self._clock = clock
        self._in_flight = in_flight
        self._live = LiveLines(self._lines)
        self._live.start()

    def refresh(self) -> None:
        self._live.refresh()

    def say(self, text: str) -> None:
        self._live.say(text)

    def end(self) -> None:
        self._live.refresh()
        self._live.end()

    def _lines(self, _height: int) -> Iterable["Text"]:
        from rich.text import Text

        from runnel.cli.render.live_frames import bar

        tally = self._tally
        head = Text.assemble((f"{self._name}  ", "bold")).append_text(bar(tally.done, tally.total))
        yield head.append(f"  {pace(tally, self._clock.now())}", style="dim")
        counts = Text("  ")
        for state, look in LOOKS.items():
            if tally.states[state]:
                text = f"{look.glyph} {tally.states[state]:,} {state.lower()}   "
                counts.append(text, style=look.style)
        if self._in_flight():
            counts.append(f"{self._in_flight():,} under way", style=LOOKS["RUNNING"].style)
        yield counts


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
