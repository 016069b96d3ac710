"""When nothing fails, orchestrators share the partitions evenly, and soon leave it at that."""

from collections import Counter

from simulation.commit_log import InvariantCheck

# One who comes first takes all, and gives up one after the other.
MOVES_MAX = 2


class PartitionShareCheck(InvariantCheck):
    name = "shares"

    def on_end(self) -> None:
        plan, leases = self.truth.plan, self.truth.leases.values()
        if not plan.is_fault_free:
            return
        counts = Counter(lease.owner for lease in leases)
        least = plan.partitions // plan.orchestrators
        has_least = (
            sum(count >= least for count in counts.values()) if least else plan.orchestrators
        )
        if max(counts.values()) > -(-plan.partitions // plan.orchestrators):
            raise self.make_violation(
                f"of {plan.orchestrators} orchestrators, these have more: {counts}"
            )
        if has_least < plan.orchestrators:
            raise self.make_violation(
                f"of {plan.orchestrators} orchestrators, these have all: {counts}"
            )
        for lease in leases:
            if lease.epoch - 1 > MOVES_MAX:
                raise self.make_violation(
                    f"partition {lease.partition} has moved {lease.epoch - 1} times"
                )
