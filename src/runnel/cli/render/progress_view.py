"""Shows running executions: a redrawn view on a terminal, else plain lines."""

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from runnel.cli.render.progress import ExecutionProgress, NodeLine
from runnel.cli.render.sentences import SignalHints, describe_change, get_awaited_signal
from runnel.cli.render.text import format_count
from runnel.cli.streams import print_to_stderr
from runnel.core.states import NodeState
from runnel.ports.clock import Clock

if TYPE_CHECKING:
    from rich.text import Text


EXECUTIONS_MAX = 8
WAITING_NODES_MAX = 10
MAP_PROGRESS_STEPS = 10


class ProgressView(Protocol):
    """Shows the progress of executions; a failure of the view must not stop the executions."""

    def add(self, progress: ExecutionProgress) -> None:
        """Adds an execution; if it has started before, shows the nodes that wait."""

    def show_changes(self, progress: ExecutionProgress) -> None:
        """Shows the lines in `progress.changed`, and clears that list."""

    def refresh(self) -> None: ...

    def print_message(self, text: str) -> None: ...

    def close(self) -> None: ...


def open_progress_view(clock: Clock, hints: SignalHints) -> ProgressView:
    """Returns a view that writes to stderr, because stdout is for the result."""
    return LiveProgressView(clock, hints) if is_live_terminal() else PlainProgressView(clock, hints)


def is_live_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in {"", "dumb"}


class PlainProgressView:
    """A progress view that prints a line for each change, until stderr is closed."""

    def __init__(self, clock: Clock, hints: SignalHints) -> None:
        self._clock = clock
        self._hints = hints
        self._names: dict[str, str] = {}
        self._steps: dict[tuple[str, str], int] = {}
        self._is_closed = False

    def add(self, progress: ExecutionProgress) -> None:
        self._names[progress.execution_id] = progress.name
        self.print_message(f"execution {progress.execution_id} of {progress.name}")
        waiting = progress.list_waiting()
        for line in waiting[:WAITING_NODES_MAX]:
            self._print_node(progress, line)
        if len(waiting) > WAITING_NODES_MAX:
            self.print_message(
                f"and {format_count(len(waiting) - WAITING_NODES_MAX, 'more node')} that wait"
            )

    def show_changes(self, progress: ExecutionProgress) -> None:
        lines, progress.changed = progress.changed, []
        for line in {line.node_id: line for line in lines}.values():
            if self._is_worth_printing(progress, line):
                self._print_node(progress, line)

    def _print_node(self, progress: ExecutionProgress, line: NodeLine) -> None:
        prefix = f"{progress.execution_id} " if len(self._names) > 1 else ""
        self.print_message(prefix + _join_lines(describe_change(line, self._clock.now())))
        signal = get_awaited_signal(line)
        if signal is not None:
            hint = self._hints.signal(progress.execution_id, signal)
            self.print_message(f"{prefix}{line.node_id}: continue with: {hint}")

    def refresh(self) -> None:
        """Nothing to redraw."""

    def print_message(self, text: str) -> None:
        if not self._is_closed:
            self._is_closed = not print_to_stderr(text)

    def close(self) -> None:
        """Nothing to close."""

    def _is_worth_printing(self, progress: ExecutionProgress, line: NodeLine) -> bool:
        """Returns False for most items of a map: each tenth of the items prints one line."""
        if line.state is not NodeState.RUNNING or line.items is None:
            return True
        step = MAP_PROGRESS_STEPS * line.items_settled // max(1, line.items)
        key = (progress.execution_id, line.node_id)
        is_new = self._steps.get(key) != step
        self._steps[key] = step
        return is_new


class LiveProgressView:
    """A progress view that is redrawn ten times a second; output of user code appears above it."""

    def __init__(self, clock: Clock, hints: SignalHints) -> None:
        from runnel.cli.render.live_frames import LiveLines

        self._clock = clock
        self._hints = hints
        self._shown: list[ExecutionProgress] = []
        self._live = LiveLines(self._lines)

    def add(self, progress: ExecutionProgress) -> None:
        self._shown.append(progress)
        self._live.start()

    def show_changes(self, progress: ExecutionProgress) -> None:
        progress.changed.clear()

    def refresh(self) -> None:
        self._live.refresh()

    def print_message(self, text: str) -> None:
        self._live.print_message(text)

    def close(self) -> None:
        self._live.close()

    def _lines(self, height: int) -> Iterable["Text"]:
        from rich.text import Text

        from runnel.cli.render.live_frames import LINES_MAX, build_frame

        now = self._clock.now()
        shown = _choose_most_relevant(self._shown)
        room = max(4, height - 2) // max(1, len(shown))
        for progress in shown:
            yield from build_frame(
                progress, now=now, hints=self._hints, lines_max=min(LINES_MAX, room)
            )
        hidden = len(self._shown) - len(shown)
        if hidden:
            final = sum(progress.is_final for progress in self._shown)
            yield Text(f"  and {hidden} more; {final} of {len(self._shown)} are done", style="dim")


def _choose_most_relevant(progresses: list[ExecutionProgress]) -> list[ExecutionProgress]:
    """Returns the first executions, unfinished ones before finished ones."""
    if len(progresses) <= EXECUTIONS_MAX:
        return progresses
    return sorted(progresses, key=lambda progress: progress.is_final)[:EXECUTIONS_MAX]


def _join_lines(text: str) -> str:
    return " ".join(text.split())
