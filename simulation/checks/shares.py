"""When nothing fails, orchestrators share the partitions evenly, and soon leave it at that."""

from collections import Counter

from simulation.commit_log import Check

# One who comes first takes all, and gives up one after the other.
MOVES_MAX = 2


class Shares(Check):
    name = "shares"

    def ended(self) -> None:
        plan, leases = self.truth.plan, self.truth.leases.values()
        if not plan.is_calm:
            return
        counts = Counter(lease.owner for lease in leases)
        least = plan.partitions // plan.orchestrators
        has_least = (
            sum(count >= least for count in counts.values()) if least else plan.orchestrators
        )
        if max(counts.values()) > -(-plan.partitions // plan.orchestrators):
            raise self.broken(f"of {plan.orchestrators} orchestrators, these have more: {counts}")
        if has_least < plan.orchestrators:
            raise self.broken(f"of {plan.orchestrators} orchestrators, these have all: {counts}")
        for lease in leases:
            if lease.epoch - 1 > MOVES_MAX:
                raise self.broken(f"partition {lease.partition} has moved {lease.epoch - 1} times")
