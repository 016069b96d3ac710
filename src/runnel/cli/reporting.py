"""What is said when executions have ended, or were left behind."""

import sys
from typing import TextIO

from runnel.cli import exits
from runnel.cli.attending import Attendance, Attended
from runnel.cli.hints import Hints
from runnel.cli.progress import Progress
from runnel.cli.sentences import outcome
from runnel.cli.watching import is_live
from runnel.cli.words import compact, pretty
from runnel.core.ids import ExecutionId
from runnel.core.states import ExecutionState
from runnel.runtime.interrupts import SIGNAL_EXIT
from runnel.views import document_of


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
