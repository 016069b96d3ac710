"""Shows executions while they run: redrawn on a terminal, as plain lines anywhere else."""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from runnel.cli.render.sentences import awaited_signal, change
from runnel.cli.render.text import count
from runnel.cli.session.hints import Hints
from runnel.cli.session.progress import NodeLine, Progress
from runnel.core.states import NodeState
from runnel.ports.clock import Clock

if TYPE_CHECKING:
    from rich.text import Text


EXECUTIONS_MAX = 8
WAITS_MAX = 10
STEPS_OF_MAP = 10


class View(Protocol):
    """What follows executions; nothing that it does may stop them."""

    def add(self, progress: Progress) -> None:
        """Shows also what it waits for, if it has begun before."""

    def changed(self, progress: Progress) -> None:
        """Shows what `progress.changed` holds, and clears it."""

    def refresh(self) -> None: ...

    def say(self, text: str) -> None: ...

    def end(self) -> None: ...


def open_view(clock: Clock, hints: Hints) -> View:
    """On stderr, because stdout is for the result."""
    return LiveView(clock, hints) if is_live() else PlainView(clock, hints)


def is_live() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb"}


class PlainView:
    """One line for each change, flushed at once; silent after the reader has gone."""

    def __init__(self, clock: Clock, hints: Hints) -> None:
        self._clock = clock
        self._hints = hints
        self._names: dict[str, str] = {}
        self._steps: dict[tuple[str, str], int] = {}
        self._is_mute = False

    def add(self, progress: Progress) -> None:
        self._names[progress.execution_id] = progress.name
        self.say(f"execution {progress.execution_id} of {progress.name}")
        waiting = progress.waiting()
        for line in waiting[:WAITS_MAX]:
            self._tell(progress, line)
        if len(waiting) > WAITS_MAX:
            self.say(f"and {count(len(waiting) - WAITS_MAX, 'more node')} that wait")

    def changed(self, progress: Progress) -> None:
        lines, progress.changed = progress.changed, []
        for line in {line.node_id: line for line in lines}.values():
            if self._is_worth_a_line(progress, line):
                self._tell(progress, line)

    def _tell(self, progress: Progress, line: NodeLine) -> None:
        prefix = f"{progress.execution_id} " if len(self._names) > 1 else ""
        self.say(prefix + _one_line(change(line, self._clock.now())))
        signal = awaited_signal(line)
        if signal is not None:
            hint = self._hints.signal(progress.execution_id, signal)
            self.say(f"{prefix}{line.node_id}: go on with: {hint}")

    def refresh(self) -> None:
        """Nothing to redraw."""

    def say(self, text: str) -> None:
        if self._is_mute:
            return
        try:
            print(text, file=sys.stderr, flush=True)
        except OSError:
            self._is_mute = True

    def end(self) -> None:
        """Nothing to close."""

    def _is_worth_a_line(self, progress: Progress, line: NodeLine) -> bool:
        """A map says how far it is in tenths, whatever the number of its items."""
        if line.state is not NodeState.RUNNING or line.items is None:
            return True
        step = STEPS_OF_MAP * line.items_settled // max(1, line.items)
        key = (progress.execution_id, line.node_id)
        is_new = self._steps.get(key) != step
        self._steps[key] = step
        return is_new


class LiveView:
    """Redrawn ten times a second; what user code prints appears above it."""

    def __init__(self, clock: Clock, hints: Hints) -> None:
        from runnel.cli.render.live_frames import LiveLines

        self._clock = clock
        self._hints = hints
        self._shown: list[Progress] = []
        self._live = LiveLines(self._lines)

    def add(self, progress: Progress) -> None:
        self._shown.append(progress)
        self._live.start()

    def changed(self, progress: Progress) -> None:
        progress.changed.clear()

    def refresh(self) -> None:
        self._live.refresh()

    def say(self, text: str) -> None:
        self._live.say(text)

    def end(self) -> None:
        self._live.end()

    def _lines(self, height: int) -> Iterable["Text"]:
        from rich.text import Text

        from runnel.cli.render.live_frames import LINES_MAX, frame

        now = self._clock.now()
        shown = _most_interesting(self._shown)
        room = max(4, height - 2) // max(1, len(shown))
        for progress in shown:
            yield from frame(progress, now=now, hints=self._hints, lines_max=min(LINES_MAX, room))
        hidden = len(self._shown) - len(shown)
        if hidden:
            final = sum(progress.is_final for progress in self._shown)
            yield Text(f"  and {hidden} more; {final} of {len(self._shown)} are done", style="dim")


def _most_interesting(progresses: list[Progress]) -> list[Progress]:
    """Those that are under way before those that are done."""
    if len(progresses) <= EXECUTIONS_MAX:
        return progresses
    return sorted(progresses, key=lambda progress: progress.is_final)[:EXECUTIONS_MAX]


def _one_line(text: str) -> str:
    return " ".join(text.split())
