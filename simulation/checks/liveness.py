"""Checks that a worker keeps its tasks if it sends a heartbeat after it was declared dead."""

from runnel.ports.workers import WorkerRecord
from simulation.commit_log import InvariantCheck


class WorkerLivenessCheck(InvariantCheck):
    name = "judged"

    def on_tasks_lost(self, record: WorkerRecord, *, counter: int, lost_count: int) -> None:
        if lost_count and counter != record.counter:
            raise self.make_violation(
                f"{record} lost {lost_count} tasks, its last heartbeat was {counter}"
            )
