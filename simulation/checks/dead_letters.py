"""Checks that each finally failed task has one dead letter, and that no other letter exists."""

from collections import Counter

from runnel.core.codec import decode_entry
from runnel.core.events import NodeFailed
from runnel.core.execution import Execution
from runnel.core.workflow import Node
from simulation.checks.expected import CRASH_LOOP
from simulation.commit_log import InvariantCheck

_ERRORS_WITHOUT_TASK = frozenset({"SignalTimeout"})
_PERMANENT_ERRORS = frozenset({CRASH_LOOP, "ValueError"})


class DeadLetterCheck(InvariantCheck):
    name = "dead letters"

    def on_end(self) -> None:
        expected = Counter(
            (execution.id, event.node, event.item)
            for execution in self.truth.executions.values()
            for event in self._find_failures(execution)
            if self._is_expected(execution.graph.node(event.node).node, event.error.type)
        )
        letters = Counter(
            (letter.token.execution_id, letter.token.node_id, letter.token.item)
            for letter in self.truth.server.state.dead_letters
        )
        if self.truth.cuts_commits:  # a decision split over two commits may repeat a letter
            letters = Counter(letters.keys())
        if letters != expected:
            raise self.make_violation(
                f"unexpected dead letters: {dict(letters - expected)}, "
                f"missing dead letters: {dict(expected - letters)}"
            )

    def _find_failures(self, execution: Execution) -> list[NodeFailed]:
        """Returns the failures of attempts.

        Leaves out maps, which fail because one of their items failed.
        """
        return [
            event
            for data in self.truth.server.state.histories[execution.id]
            for event in decode_entry(data).events
            if isinstance(event, NodeFailed)
            and (event.item >= 0 or execution.graph.index[event.node] not in execution.maps)
        ]

    def _is_expected(self, node: Node, error: str) -> bool:
        if error in _ERRORS_WITHOUT_TASK:
            return False
        is_final = error in _PERMANENT_ERRORS or (
            node.child is not None and not node.retry.retry_on
        )
        return is_final or self.truth.plan.keeps_exhausted
