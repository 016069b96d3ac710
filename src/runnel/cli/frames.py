"""One frame of the live view: an execution as lines of styled text."""

from collections.abc import Iterator, Sequence
from itertools import islice

from rich.text import Text

from runnel.cli.hints import Hints
from runnel.cli.looks import LOOKS, SPINNER
from runnel.cli.progress import ACTIVE, NodeLine, Progress
from runnel.cli.sentences import awaited_signal, remark, spent
from runnel.cli.words import duration, short, some
from runnel.core.states import NodeState

LINES_MAX = 40
NAME_CHARS_MAX = 32
SPENT_CHARS = 8
BAR_CHARS = 20
ACTIVE_MAX = 8
FRAMES_PER_S = 10


def frame(
    progress: Progress, *, now: float, hints: Hints, lines_max: int = LINES_MAX
) -> list[Text]:
    """A line for each node, or counts and the nodes at work when there are too many."""
    if len(progress.lines) + 1 <= lines_max:
        body = list(_nodes(progress, list(progress.lines.values()), now, hints))
    else:
        body = _summary(progress, now, hints, max(1, min(ACTIVE_MAX, lines_max - 2)))
    return [_head(progress, now), *body]


def bar(done: int, total: int, chars: int = BAR_CHARS) -> Text:
    filled = chars if total == 0 else chars * done // total
    text = Text("━" * filled, style="green")
    return text.append("─" * (chars - filled), style="bright_black")


def _head(progress: Progress, now: float) -> Text:
    look = LOOKS[progress.state]
    total = len(progress.lines)
    took = (progress.finished_at or now) - (progress.started_at or now)
    text = Text.assemble(
        (f"{_glyph(progress.state, now)} ", look.style),
        (progress.name, "bold"),
        (f"  {progress.execution_id}  ", "dim"),
    )
    text.append_text(bar(progress.settled, total))
    return text.append(f"  {progress.settled:,}/{total:,}  {duration(took)}", style="dim")


def _nodes(
    progress: Progress, shown: Sequence[NodeLine], now: float, hints: Hints
) -> Iterator[Text]:
    width = min(NAME_CHARS_MAX, max((len(each.node_id) for each in shown), default=0))
    for line in shown:
        text = Text.assemble(
            "  ",
            (f"{_glyph(line.state, now)} ", LOOKS[line.state].style),
            (f"{short(line.node_id, width):<{width}}", _name_style(line)),
            (f"{spent(line, now):>{SPENT_CHARS}}", "dim"),
        )
        _add_details(text, progress, line, now)
        yield text
        signal = awaited_signal(line)
        if signal is not None:
            hint = hints.signal(progress.execution_id, signal)
            yield Text.assemble(" " * (width + SPENT_CHARS + 6), (hint, "cyan"))


def _name_style(line: NodeLine) -> str:
    return "dim" if line.state in {NodeState.PENDING, NodeState.SKIPPED} else ""


def _add_details(text: Text, progress: Progress, line: NodeLine, now: float) -> None:
    if line.items is not None:
        text.append("  ").append_text(bar(line.items_settled, line.items))
        text.append(f" {line.items_settled:,}/{line.items:,}", style="dim")
    if line.attempts > 1 and line.state is not NodeState.WAITING:
        text.append(f"  attempt {line.attempts}", style="yellow")
    said = " ".join(remark(line, now).split()) or _after(progress, line)
    if said:
        style = LOOKS[line.state].style if line.state is NodeState.FAILED else "dim"
        text.append(f"  {said}", style=style)


def _after(progress: Progress, line: NodeLine) -> str:
    """What a node that has not begun waits for: its parents that are not settled."""
    if line.state is not NodeState.PENDING:
        return ""
    missing = [each for each in line.parents if not progress.lines[each].is_final]
    return f"after {some(missing, 3)}" if missing else ""


def _summary(progress: Progress, now: float, hints: Hints, active_max: int) -> list[Text]:
    counts = Text("  ")
    for state, look in LOOKS.items():
        number = progress.counts[NodeState(state)]
        if number:
            counts.append(f"{look.glyph} {number:,} {state.lower()}   ", style=look.style)
    active = (line for state in ACTIVE for line in progress.active[state].values())
    shown = list(islice(active, active_max))
    return [counts, *_nodes(progress, shown, now, hints)]


def _glyph(state: str, now: float) -> str:
    if state == NodeState.RUNNING:
        return SPINNER[int(now * FRAMES_PER_S) % len(SPINNER)]
    return LOOKS[state].glyph
