"""Shows how far a batch is: by two lines that are redrawn on a terminal, or a line now and then."""

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from runnel.cli.batches.tally import Tally
from runnel.cli.looks import LOOKS
from runnel.cli.watching import is_live
from runnel.cli.words import count, duration
from runnel.ports.clock import Clock

if TYPE_CHECKING:
    from rich.text import Text

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
        from runnel.cli.live_lines import LiveLines

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

        from runnel.cli.frames import bar

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
