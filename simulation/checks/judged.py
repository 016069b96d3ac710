"""A worker that has shown a sign of life since it was judged to be dead keeps its tasks."""

from runnel.ports.workers import WorkerRecord
from simulation.commit_log import Check


class Judged(Check):
    name = "judged"

    def lost(self, judged: WorkerRecord, *, sign: int, lost: int) -> None:
        if lost and sign != judged.counter:
            raise self.broken(f"{judged} lost {lost} tasks, its last sign of life was {sign}")
