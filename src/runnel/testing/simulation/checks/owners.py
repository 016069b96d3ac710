"""Only the current owner of a partition writes, and no task runs for a former owner's decision."""

from runnel.core.ids import Token
from runnel.core.states import IN_FLIGHT
from runnel.testing.simulation.truth import Check, Step


class Owners(Check):
    name = "owners"

    def committed(self, step: Step) -> None:
        current = self.truth.leases[step.lease.partition]
        if step.lease.nonce != current.nonce:
            raise self.broken(
                f"{step.lease.owner} (epoch {step.lease.epoch}) wrote partition "
                f"{current.partition}, which {current.owner} (epoch {current.epoch}) owns"
            )

    def started(self, worker: str, token: Token) -> None:
        run = self.truth.run_of(token)
        is_out = run is not None and run.state in IN_FLIGHT
        if not (is_out and self.truth.is_current(token, run)):
            state = "unknown" if run is None else f"{run.state} #{run.attempt}"
            raise self.broken(f"{worker} starts {token} while its node is {state}")
