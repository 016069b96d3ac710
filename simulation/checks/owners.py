"""Only the current owner of a partition writes, and no task runs for a former owner's decision."""

from runnel.core.ids import Token
from runnel.core.states import IN_FLIGHT
from simulation.commit_log import Check, Step, Truth


class Owners(Check):
    name = "owners"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._times: dict[str, float] = {}

    def committed(self, step: Step) -> None:
        current = self.truth.leases[step.lease.partition]
        if step.lease.nonce != current.nonce:
            raise self.broken(
                f"{step.lease.owner} (epoch {step.lease.epoch}) wrote partition "
                f"{current.partition}, which {current.owner} (epoch {current.epoch}) owns"
            )

        if step.at is not None:
            self._check_time(step.lease.nonce, step.at)

    def _check_time(self, nonce: str, at: float) -> None:
        """Whatever its clock does, what one owner writes is never earlier than what it wrote."""
        before = self._times.get(nonce, at)
        if at < before:
            raise self.broken(f"the time of an owner runs back by {before - at:.3f} s")
        self._times[nonce] = at

    def started(self, worker: str, token: Token) -> None:
        run = self.truth.run_of(token)
        is_out = run is not None and run.state in IN_FLIGHT
        if not (is_out and self.truth.is_current(token, run)):
            state = "unknown" if run is None else f"{run.state} #{run.attempt}"
            raise self.broken(f"{worker} starts {token} while its node is {state}")
