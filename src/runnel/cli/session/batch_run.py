"""Runs a batch in an engine of this process, or submits it to the workers of a server."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.process_signals import SIGNAL_EXIT_BASE, handle_signals
from runnel.app.wiring import build_engine
from runnel.cli.errors import FAILED, OK
from runnel.cli.render.progress_view import is_live_terminal
from runnel.cli.render.text import STATE_STYLES, format_count, format_duration, to_compact_json
from runnel.cli.session.batch_output import (
    BatchResults,
    print_continue_hint,
    print_failures,
    print_summary,
)
from runnel.cli.session.batch_tally import BatchTally
from runnel.cli.session.hints import CommandHints
from runnel.cli.session.open_client import ClientSession, open_client
from runnel.cli.session.run_locally import (
    REFRESH_S,
    UnfinishedChildren,
    make_stop_message,
    show_logs,
)
from runnel.cli.streams import print_to_stderr
from runnel.client.batch import AdoptCallback, Batch, BatchFeeder, find_abandoned_partitions
from runnel.core.ids import ExecutionId
from runnel.notify.event_bus import CommittedEvents, EventBus, StartedTask
from runnel.ports.clock import Clock, NoSecrets, Secrets
from runnel.settings.model import Settings

if TYPE_CHECKING:
    from rich.text import Text


REPORT_INTERVAL_S = 5.0
SHOWN_SIGNALS_MAX = 3


class BatchView(Protocol):
    """Shows the progress of a batch: two redrawn lines on a terminal, else a line every 5 s."""

    def refresh(self) -> None: ...

    def print_message(self, text: str) -> None: ...

    def close(self) -> None: ...


def open_batch_view(
    name: str, tally: BatchTally, clock: Clock, *, in_flight: Callable[[], int]
) -> BatchView:
    """Returns a view that writes to stderr, because stdout is for the result."""
    if not is_live_terminal():
        return PlainBatchView(tally, clock)
    from runnel.cli.render.live_frames import LiveLines

    view = LiveLines(lambda _height: _draw_lines(name, tally, clock, in_flight()))
    view.start()
    return view


def describe_pace(tally: BatchTally, now: float) -> str:
    """Returns a text such as `12 of 2,000 documents, 9,412 per hour, 12m 40s left, 2 failed`."""
    parts = [f"{tally.done:,} of {format_count(tally.total, 'document')}"]
    if tally.done_now:
        parts.append(f"{tally.per_hour(now):,.0f} per hour")
    remaining_s = tally.remaining_s(now)
    if remaining_s is not None and tally.done < tally.total:
        parts.append(f"{format_duration(remaining_s)} left")
    if tally.failures:
        parts.append(f"{len(tally.failures):,} failed")
    parts += describe_waiting(tally)
    return ", ".join(parts)


def describe_waiting(tally: BatchTally) -> list[str]:
    """Returns texts such as `8 wait for signal 'approve'`, one for each signal."""
    numbers = Counter(tally.waiting.values())
    return [
        f"{number:,} wait{'s' if number == 1 else ''} for {signal}"
        for signal, number in numbers.most_common(SHOWN_SIGNALS_MAX)
    ]


class PlainBatchView:
    def __init__(self, tally: BatchTally, clock: Clock) -> None:
        self._tally = tally
        self._clock = clock
        self._printed_at = clock.monotonic()
        self._last_message = ""

    def refresh(self) -> None:
        if self._clock.monotonic() - self._printed_at >= REPORT_INTERVAL_S:
            self._printed_at = self._clock.monotonic()
            self.print_message(describe_pace(self._tally, self._clock.now()))

    def print_message(self, text: str) -> None:
        if text == self._last_message:
            return
        self._last_message = text
        print_to_stderr(text)

    def close(self) -> None:
        """Nothing to close."""


def _draw_lines(name: str, tally: BatchTally, clock: Clock, in_flight: int) -> Iterator["Text"]:
    from rich.text import Text

    from runnel.cli.render.live_frames import draw_bar

    head = Text.assemble((f"{name}  ", "bold")).append_text(draw_bar(tally.done, tally.total))
    yield head.append(f"  {describe_pace(tally, clock.now())}", style="dim")
    counts = Text("  ")
    for state, state_style in STATE_STYLES.items():
        if tally.states[state]:
            text = f"{state_style.glyph} {tally.states[state]:,} {state.lower()}   "
            counts.append(text, style=state_style.style)
    if in_flight:
        counts.append(f"{in_flight:,} under way", style=STATE_STYLES["RUNNING"].style)
    yield counts


STOP_MESSAGE = "no more documents are submitted; submitted executions continue"


class ReportOptions(NamedTuple):
    """The options of the report: the summary goes to `out`, a line per document to `output`."""

    hints: CommandHints
    out: TextIO
    output: Path | None
    as_json: bool


async def run_batch_locally(batch: Batch, settings: Settings, report_options: ReportOptions) -> int:
    """Runs a batch in this process and returns the exit code.

    Also resumes the unfinished executions of a dead process of the same batch.
    """
    engine = await build_engine(settings)
    try:
        await engine.claim_home_partition()
        adopts = await find_abandoned_partitions(engine.backend, batch)
        children = _watch_children(engine)
        run = BatchRun(batch, engine, report_options, adopt=engine.adopt_if_free)
        with run.show_progress(make_stop_message(settings), stop_now=engine.stops.abort.set):
            async with asyncio.TaskGroup() as group:
                group.create_task(engine.run(adopts=adopts))
                try:
                    await run.feed_documents()
                    await _wait_for_clean_up(engine, run, children)
                finally:
                    engine.stops.drain.set()
        return run.report()
    finally:
        await engine.backend.close()


async def run_batch_on_server(
    batch: Batch, settings: Settings, report_options: ReportOptions
) -> int:
    """Submits a batch to a server and returns the exit code.

    After an interruption, the workers continue the submitted executions.
    """
    async with open_client(settings) as session:
        run = BatchRun(batch, session, report_options, is_over_http=settings.has_server)
        with run.show_progress(STOP_MESSAGE):
            await run.feed_documents()
        return run.report()


class BatchRun:
    """One run of a batch, from the first document to the summary.

    `signal` is the number of the first process signal, such as SIGINT.
    """

    def __init__(
        self,
        batch: Batch,
        source: EmbeddedEngine | ClientSession,
        report_options: ReportOptions,
        *,
        adopt: AdoptCallback | None = None,
        is_over_http: bool = False,
    ) -> None:
        self.signal: int | None = None
        self.tally = BatchTally(len(batch.items), started_at=source.clock.now())
        self._batch = batch
        self._clock = source.clock
        self._secrets: Secrets = (
            source.secrets if isinstance(source, EmbeddedEngine) else NoSecrets()
        )
        self._report_options = report_options
        self._stop = asyncio.Event()
        self._said_all_wait = False
        self._partial_output: Path | None = None
        self._results = BatchResults(report_options.output, source.client)
        self._feeder = BatchFeeder(
            batch,
            source.client,
            source.clock,
            event_bus=source.event_bus if isinstance(source, EmbeddedEngine) else EventBus(),
            adopt=adopt,
            is_over_http=is_over_http,
        )
        self.tally.waiting = self._feeder.waiting
        self._view = open_batch_view(
            batch.name, self.tally, source.clock, in_flight=lambda: self._feeder.in_flight
        )

    @contextmanager
    def show_progress(
        self, stop_message: str, stop_now: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Shows progress on stderr while the block runs.

        The first signal stops the submission of documents; the second signal calls `stop_now`.
        """

        def on_signal(number: int) -> None:
            if self.signal is None:
                self.signal = number
                self._view.print_message(stop_message)
                self._stop.set()
            elif stop_now is not None:
                self._view.print_message("stopping at once")
                stop_now()

        show_logs(self._secrets.redact)
        self._view.print_message(
            f"{self._batch.name}: {format_count(self.tally.total, 'document')}"
        )
        try:
            with handle_signals(on_signal, before_exit=self._view.close):
                yield
            self._partial_output = self._results.finish(is_complete=not self._unfinished_count)
        finally:
            self._view.close()
            self._results.discard()

    async def feed_documents(self) -> None:
        """Submits the documents and waits until all have ended, or until a signal arrives."""
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feed())
            while not feeding.done():
                self._say_if_all_wait()
                self._view.refresh()
                await asyncio.wait([feeding], timeout=REFRESH_S)

    async def _feed(self) -> None:
        async for outcome in self._feeder.run(self._stop):
            self.tally.add(outcome)
            await self._results.add(outcome)

    def _say_if_all_wait(self) -> None:
        """Prints once that no other document is left, with the command for one signal."""
        waiting = self.tally.waiting
        if self._said_all_wait or not waiting or len(waiting) < self._unfinished_count:
            return
        self._said_all_wait = True
        execution_id, signal = next(iter(waiting.items()))
        name = signal.partition("'")[2].rstrip("'")
        self._view.print_message(
            f"{', '.join(describe_waiting(self.tally))}; no other document is left; "
            f"send a signal with: {self._report_options.hints.signal(execution_id, name)}"
        )

    def report(self) -> int:
        """Prints the summary of the batch and returns the exit code."""
        now, name = self._clock.now(), self._batch.name
        if self._report_options.as_json:
            print(to_compact_json(self.tally.to_document(name, now)), file=self._report_options.out)
        else:
            print_summary(name, self.tally, now, self._report_options.out)
        self._report_options.out.flush()
        print_failures(self.tally, self._report_options.hints)
        if self.tally.waiting:
            print_to_stderr(", ".join(describe_waiting(self.tally)))
        if self._unfinished_count:
            print_continue_hint(self._partial_output)
        if self.signal is not None and self._unfinished_count:
            return SIGNAL_EXIT_BASE + self.signal
        return FAILED if self.tally.failures else OK

    @property
    def _unfinished_count(self) -> int:
        return self.tally.total - self.tally.done


def _watch_children(engine: EmbeddedEngine) -> UnfinishedChildren:
    children = UnfinishedChildren()

    def update(notification: CommittedEvents | StartedTask) -> None:
        if isinstance(notification, CommittedEvents):
            children.update(notification)

    engine.event_bus.watch(update)
    return children


async def _wait_for_clean_up(
    engine: EmbeddedEngine, run: BatchRun, children: UnfinishedChildren
) -> None:
    """Waits for children of failed executions: a child may still run its clean-up nodes."""
    if run.signal is not None:
        return
    for outcome in run.tally.failures:
        execution_id = ExecutionId(outcome.summary.execution_id)
        while children.has_any(execution_id):
            child = children.list_children(execution_id)[0]
            await engine.client.wait_for_end(child)
            children.remove(child)
