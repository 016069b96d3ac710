"""Draws the live view of a terminal: the frame of an execution, and lines that are redrawn."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TextIO

from rich.console import Console, ConsoleDimensions
from rich.live import Live
from rich.text import Text

from runnel.cli.render.progress import ACTIVE_STATES, ExecutionProgress, NodeLine
from runnel.cli.render.sentences import (
    SignalHints,
    describe_reason,
    format_elapsed,
    get_awaited_signal,
)
from runnel.cli.render.text import SPINNER, STATE_STYLES, format_duration, join_names, shorten
from runnel.cli.streams import STDERR, STDOUT
from runnel.core.states import NodeState

LINES_MAX = 40
NAME_CHARS_MAX = 32
ELAPSED_CHARS = 8
BAR_CHARS = 20
ACTIVE_MAX = 8
FRAMES_PER_S = 10
CHUNK_BYTES = 65_536
COLUMNS_DEFAULT, LINES_DEFAULT = 80, 25


def build_frame(
    progress: ExecutionProgress, *, now: float, hints: SignalHints, lines_max: int = LINES_MAX
) -> list[Text]:
    """Returns a headline and a line for each node.

    For a graph with more than `lines_max` lines, returns the counts of states and the active nodes.
    """
    if len(progress.lines) + 1 <= lines_max:
        body = list(_build_node_lines(progress, list(progress.lines.values()), now, hints))
    else:
        body = _build_summary(progress, now, hints, max(1, min(ACTIVE_MAX, lines_max - 2)))
    return [_build_head(progress, now), *body]


def draw_bar(done: int, total: int, chars: int = BAR_CHARS) -> Text:
    filled = chars if total == 0 else chars * done // total
    text = Text("━" * filled, style="green")
    return text.append("─" * (chars - filled), style="bright_black")


def _build_head(progress: ExecutionProgress, now: float) -> Text:
    state_style = STATE_STYLES[progress.state]
    total = len(progress.lines)
    took = (progress.finished_at or now) - (progress.started_at or now)
    text = Text.assemble(
        (f"{_choose_glyph(progress.state, now)} ", state_style.style),
        (progress.name, "bold"),
        (f"  {progress.execution_id}  ", "dim"),
    )
    text.append_text(draw_bar(progress.settled, total))
    return text.append(f"  {progress.settled:,}/{total:,}  {format_duration(took)}", style="dim")


def _build_node_lines(
    progress: ExecutionProgress, shown: Sequence[NodeLine], now: float, hints: SignalHints
) -> Iterator[Text]:
    width = min(NAME_CHARS_MAX, max((len(line.node_id) for line in shown), default=0))
    for line in shown:
        text = Text.assemble(
            "  ",
            (f"{_choose_glyph(line.state, now)} ", STATE_STYLES[line.state].style),
            (f"{shorten(line.node_id, width):<{width}}", _choose_name_style(line)),
            (f"{format_elapsed(line, now):>{ELAPSED_CHARS}}", "dim"),
        )
        _add_details(text, progress, line, now)
        yield text
        signal = get_awaited_signal(line)
        if signal is not None:
            hint = hints.signal(progress.execution_id, signal)
            yield Text.assemble(" " * (width + ELAPSED_CHARS + 6), (hint, "cyan"))


def _choose_name_style(line: NodeLine) -> str:
    return "dim" if line.state in {NodeState.PENDING, NodeState.SKIPPED} else ""


def _add_details(text: Text, progress: ExecutionProgress, line: NodeLine, now: float) -> None:
    if line.items is not None:
        text.append("  ").append_text(draw_bar(line.items_settled, line.items))
        text.append(f" {line.items_settled:,}/{line.items:,}", style="dim")
    if line.attempts > 1 and line.state is not NodeState.WAITING:
        text.append(f"  attempt {line.attempts}", style="yellow")
    reason = " ".join(describe_reason(line, now).split())
    reason = reason or _describe_missing_parents(progress, line)
    if reason:
        style = STATE_STYLES[line.state].style if line.state is NodeState.FAILED else "dim"
        text.append(f"  {reason}", style=style)


def _describe_missing_parents(progress: ExecutionProgress, line: NodeLine) -> str:
    """Lists the unsettled parents that a pending node waits for."""
    if line.state is not NodeState.PENDING:
        return ""
    missing = [parent for parent in line.parents if not progress.lines[parent].is_final]
    return f"after {join_names(missing, 3)}" if missing else ""


def _build_summary(
    progress: ExecutionProgress, now: float, hints: SignalHints, active_max: int
) -> list[Text]:
    counts = Text("  ")
    for state, state_style in STATE_STYLES.items():
        number = progress.counts[NodeState(state)]
        if number:
            counts.append(
                f"{state_style.glyph} {number:,} {state.lower()}   ", style=state_style.style
            )
    active = (line for state in ACTIVE_STATES for line in progress.active[state].values())
    shown = list(islice(active, active_max))
    return [counts, *_build_node_lines(progress, shown, now, hints)]


def _choose_glyph(state: str, now: float) -> str:
    if state == NodeState.RUNNING:
        return SPINNER[int(now * FRAMES_PER_S) % len(SPINNER)]
    return STATE_STYLES[state].glyph


class OutputCapture:
    """Captures output that bypasses Python's streams, such as that of child processes.

    Output written straight to the terminal would break the live view. So the output goes through a
    pipe and is printed above the view. Python's own output does not use the pipe: the thread that
    reads the pipe could wait for itself.

    The capture lasts until `close`. `terminal` is the former stderr.
    """

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._loop = asyncio.get_running_loop()
        self._saved = {number: os.dup(number) for number in (STDOUT, STDERR)}
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        for number in self._saved:
            os.dup2(write, number)
        os.close(write)
        self.terminal: TextIO = os.fdopen(os.dup(self._saved[STDERR]), "w", errors="replace")
        self._loop.add_reader(self._read, self._read_output)

    def size(self) -> tuple[int, int]:
        """Returns columns and lines of the terminal; the standard streams lead to the pipe."""
        columns, lines = os.get_terminal_size(self._saved[STDERR])
        return columns or COLUMNS_DEFAULT, lines or LINES_DEFAULT

    def close(self) -> None:
        for number, saved in self._saved.items():
            os.dup2(saved, number)
            os.close(saved)
        self._loop.remove_reader(self._read)
        while self._read_output():
            continue
        os.close(self._read)

    def _read_output(self) -> bool:
        try:
            data = os.read(self._read, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._on_text(data.decode(errors="replace").removesuffix("\n"))
        return bool(data)


class LiveLines:
    """Redraws lines at the bottom of a terminal; other output appears above them.

    `lines` is called with the height of the terminal for each frame.

    Until `close`, all output of this process and its children appears above the lines.
    """

    def __init__(self, lines: Callable[[int], Iterable[Text]]) -> None:
        self._lines = lines
        self._capture = OutputCapture(self._print)
        self._console = Console(file=self._capture.terminal, highlight=False)
        self._resize()
        self._live = Live(
            console=self._console,
            get_renderable=self._render,
            auto_refresh=False,
            vertical_overflow="crop",
        )

    def start(self) -> None:
        self._live.start()
        # rich hides the cursor. A killed process would leave it hidden, so show it at once.
        self._console.show_cursor()

    def refresh(self) -> None:
        if self._live.is_started:
            self._resize()
            self._live.refresh()

    def print_message(self, text: str) -> None:
        self._console.print(text, markup=False, style="yellow")

    def close(self) -> None:
        self._capture.close()
        self._live.stop()
        self._capture.terminal.close()

    def _resize(self) -> None:
        """Adopts the current size of the terminal."""
        self._console.size = ConsoleDimensions(*self._capture.size())

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _render(self) -> Text:
        lines = self._lines(self._console.height)
        text = Text("\n", no_wrap=True, overflow="ellipsis").join(lines)
        text.no_wrap, text.overflow = True, "ellipsis"
        return text
