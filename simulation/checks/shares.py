"""Checks that orchestrators share partitions evenly in runs without faults, and then keep them."""

from collections import Counter

from simulation.commit_log import InvariantCheck

# The first orchestrator takes all partitions, and then gives up one partition after the other.
MOVES_MAX = 2


class PartitionShareCheck(InvariantCheck):
    name = "shares"

    def on_end(self) -> None:
        plan, leases = self.truth.plan, self.truth.leases.values()
        if not plan.is_fault_free:
            return
        counts = Counter(lease.owner for lease in leases)
        share_min = plan.partitions // plan.orchestrators
        with_share = (
            sum(count >= share_min for count in counts.values())
            if share_min
            else plan.orchestrators
        )
        if max(counts.values()) > -(-plan.partitions // plan.orchestrators):
            raise self.make_violation(
                f"an orchestrator of {plan.orchestrators} has too many partitions: {counts}"
            )
        if with_share < plan.orchestrators:
            raise self.make_violation(
                f"an orchestrator of {plan.orchestrators} has too few partitions: {counts}"
            )
        for lease in leases:
            if lease.epoch - 1 > MOVES_MAX:
                raise self.make_violation(
                    f"partition {lease.partition} has moved {lease.epoch - 1} times"
                )
