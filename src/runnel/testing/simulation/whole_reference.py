"""The reference, with what a single random graph is not tried with: skips, and force."""

from runnel.core.states import NODE_FINAL, NodeState
from runnel.testing.reference import Reference


class WholeReference(Reference):
    def skip(self, node_id: str) -> None:
        """Its own code found that there is nothing to do."""
        self.state[node_id] = NodeState.SKIPPED
        self._go_on()

    def force(self) -> None:
        """A cancel after which not even clean-up runs."""
        self.outcome = self.outcome or "CANCELLED"
        for node_id, state in self.state.items():
            if state not in NODE_FINAL:
                self.state[node_id] = NodeState.CANCELLED
