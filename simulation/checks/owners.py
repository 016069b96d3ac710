"""Checks that only the current owner of a partition writes, and no task starts for a
former owner.
"""

from runnel.core.ids import TaskToken
from runnel.core.states import IN_FLIGHT_STATES
from simulation.commit_log import CommitStep, GroundTruth, InvariantCheck


class OwnershipCheck(InvariantCheck):
    name = "owners"

    def __init__(self, truth: GroundTruth) -> None:
        super().__init__(truth)
        self._times: dict[str, float] = {}

    def on_commit(self, step: CommitStep) -> None:
        current = self.truth.leases[step.lease.partition]
        if step.lease.nonce != current.nonce:
            raise self.make_violation(
                f"{step.lease.owner} (epoch {step.lease.epoch}) wrote partition "
                f"{current.partition}, which {current.owner} (epoch {current.epoch}) owns"
            )

        if step.at is not None:
            self._check_time(step.lease.nonce, step.at)

    def _check_time(self, nonce: str, at: float) -> None:
        """Checks that the commit times of one owner never go backwards."""
        before = self._times.get(nonce, at)
        if at < before:
            raise self.make_violation(
                f"the commit time of an owner goes backwards by {before - at:.3f} s"
            )
        self._times[nonce] = at

    def on_task_started(self, worker: str, token: TaskToken) -> None:
        run = self.truth.find_run(token)
        is_in_flight = run is not None and run.state in IN_FLIGHT_STATES
        if not (is_in_flight and self.truth.is_current(token, run)):
            state = "unknown" if run is None else f"{run.state} #{run.attempt}"
            raise self.make_violation(f"{worker} starts {token} while its node is {state}")
