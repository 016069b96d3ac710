"""A simple reference of an execution, which evaluates every node again after each change."""

from runnel.core.run_when import CLEAN_UP_RULES, RunWhen
from runnel.core.states import FINAL_NODE_STATES
from runnel.core.states import NodeState as S
from runnel.core.workflow import OnFailure, Workflow


class ReferenceExecution:
    """Starts each node as soon as possible, without retries. `settle` records how a node ended."""

    def __init__(self, workflow: Workflow, false_conditions: set[str]) -> None:
        self.workflow = workflow
        self.false_conditions = false_conditions
        self.state: dict[str, S] = {node.id: S.PENDING for node in workflow.nodes}
        self.has_run: set[str] = set()
        self.blocked: set[str] = set()
        self.outcome: str | None = None
        self._advance()

    def settle(self, node_id: str, *, is_ok: bool) -> None:
        self.state[node_id] = S.COMPLETED if is_ok else S.FAILED
        is_first = not is_ok and self.outcome is None
        if is_first and self.workflow.on_failure is OnFailure.FAIL_FAST:
            self._close("FAILED")
        self._advance()

    def cancel(self, outcome: str = "CANCELLED") -> None:
        """Ends the execution by a cancel, or with the outcome FAILED by its timeout."""
        if self.outcome is None and self.result is None:
            self._close(outcome)
            self._advance()

    @property
    def running(self) -> list[str]:
        return [node_id for node_id, state in self.state.items() if state is S.RUNNING]

    @property
    def result(self) -> str | None:
        if any(state not in FINAL_NODE_STATES for state in self.state.values()):
            return None
        is_failed = S.FAILED in self.state.values()
        return self.outcome or ("FAILED" if is_failed else "COMPLETED")

    def _close(self, outcome: str) -> None:
        self.outcome = outcome
        for node in self.workflow.nodes:
            if node.run_when not in CLEAN_UP_RULES and self.state[node.id] not in FINAL_NODE_STATES:
                self.state[node.id] = S.CANCELLED

    def _advance(self) -> None:
        changed = True
        while changed:
            changed = False
            for node in self.workflow.nodes:
                is_open = self.state[node.id] is S.PENDING
                if is_open and all(self.state[p] in FINAL_NODE_STATES for p in node.dependencies):
                    self.state[node.id] = self._start(node.id, node.run_when, node.dependencies)
                    changed = True

    def _start(self, node_id: str, rule: RunWhen, parents: tuple[str, ...]) -> S:
        states = [self.state[parent] for parent in parents]
        is_interrupted = any(self.state[p] is S.CANCELLED and p in self.has_run for p in parents)
        has_failed = S.FAILED in states or is_interrupted
        is_bad = S.FAILED in states or S.CANCELLED in states or self.blocked & set(parents)
        runs = {
            RunWhen.ALL_SETTLED: True,
            RunWhen.ONE_FAILED: has_failed,
            RunWhen.NONE_FAILED: not is_bad,
            RunWhen.ALL_COMPLETED: all(state is S.COMPLETED for state in states),
            RunWhen.DEFAULT: not is_bad and S.COMPLETED in states,
        }[rule]
        if parents and not runs:
            if is_bad and rule not in CLEAN_UP_RULES:
                self.blocked.add(node_id)
            return S.SKIPPED
        if node_id in self.false_conditions:
            return S.SKIPPED
        self.has_run.add(node_id)
        return S.RUNNING
