"""Follows an execution that other processes run, until it is final or the user has seen enough."""

from typing import TextIO

from runnel.cli.attending import Attendance
from runnel.cli.hints import Hints
from runnel.cli.progress import Progress
from runnel.cli.reporting import report
from runnel.cli.watching import open_view
from runnel.core.execution import Execution
from runnel.core.ids import ExecutionId
from runnel.runtime.absence import Absence
from runnel.runtime.look import Look
from runnel.runtime.remote import Remote
from runnel.settings import Settings

FAREWELL = "stopping to watch; the execution goes on"


async def onlook(
    look: Look,
    execution_id: ExecutionId,
    settings: Settings,
    hints: Hints,
    *,
    lead: str = "",
    out: TextIO,
    as_json: bool,
) -> int:
    """Says `lead` first; returns the exit code, as that of a run in this process."""
    execution = await look.client.load(execution_id)
    view = open_view(look.clock, hints)
    if lead:
        view.say(lead)
    absence = _absence(look, execution, settings) if look.has_workers else None
    remote = Remote(look, absence=absence, say=view.say)
    attendance = Attendance(remote, view, farewell=FAREWELL)
    # From its beginning, event by event; or, when it has ended meanwhile, as it ended.
    attendance.follow(Progress(execution_id, execution.graph.workflow))
    await attendance.run()
    return await report(remote, attendance, hints, out=out, as_json=as_json)


def _absence(look: Look, execution: Execution, settings: Settings) -> Absence:
    queues = frozenset(node.task_queue for node in execution.graph.workflow.nodes)
    return Absence(look.backend, look.clock, settings, queues=queues)
