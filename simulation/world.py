"""Runs one plan: builds the deployment, injects the faults, and checks the final state."""

import asyncio
import hashlib
from random import Random

from runnel.backends.memory.store import MemoryState
from runnel.core.workflow import Workflow, encode_workflow, hash_workflow
from runnel.ports.archive import Definition
from runnel.ports.store import CommitLimits
from runnel.testing.clock import FakeIds
from simulation.backend import SimulatedBackend
from simulation.callers import SimulatedCallers
from simulation.checks import ALL_CHECKS
from simulation.commit_log import GroundTruth
from simulation.deployment import SimulatedDeployment
from simulation.faults import Fault, InvariantViolation, RunStatistics
from simulation.features import FeatureCounter
from simulation.network import Network
from simulation.plan import FAULT_PHASE_S, SKEW_S_MAX, PlannedFault, SimulationPlan
from simulation.process import SimulatedProcess, StandstillError, VirtualLoop
from simulation.server import SimulatedServer

# The time for recovery after the last fault: sleeps, retries, expiring leases, clock skew.
RECOVERY_S_MAX = 400.0
# The time for releases, stops and heartbeats after the last execution has ended.
QUIET_S = 4.0
# The additional time for callers, which poll executions of other processes every few seconds.
WAITERS_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.5
DEFAULT_LIMITS = CommitLimits()
# Commit limits that are so small that single decisions are split into several commits.
SMALL_LIMITS = CommitLimits(commands=4, writes=6, size_bytes=4_000)


class SimulationRun:
    """The result of a plan. Every run of the same plan has the same `digest`."""

    def __init__(self, plan: SimulationPlan) -> None:
        self.plan = plan
        self.tally = RunStatistics()
        self.trace: list[str] = []
        self.violation: InvariantViolation | None = None
        self.digest = ""
        self.duration_s = 0.0


def simulate(plan: SimulationPlan) -> SimulationRun:
    run = SimulationRun(plan)
    world = _Simulation(plan, run)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(world.run())
        except StandstillError as standstill:
            run.violation = world.violation or InvariantViolation("standstill", str(standstill))
    return run


class _Simulation:
    def __init__(self, plan: SimulationPlan, run: SimulationRun) -> None:
        self._plan = plan
        self._run = run
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def violation(self) -> InvariantViolation | None:
        return self._truth.violation

    async def run(self) -> None:
        self._build()
        try:
            await self._run_phases()
            self._truth.check_end()
            first_violation = self._truth.violation
        except InvariantViolation as violation:
            first_violation = self._truth.violation or violation
        self._run.violation = first_violation
        self._run.digest = self._hash.hexdigest()
        self._run.duration_s = asyncio.get_running_loop().time()
        await self._tear_down()

    def _build(self) -> None:
        plan, tally = self._plan, self._run.tally
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_simulator_error)
        tally.executions = len(plan.orders)
        self._truth = GroundTruth(
            lambda truth: [FeatureCounter(truth), *(check(truth) for check in ALL_CHECKS)],
            plan,
            tally,
            self._trace,
        )
        self._server = SimulatedServer(
            SimulatedProcess("store", loop).clock,
            FakeIds("s"),
            self._truth,
            partitions=plan.partitions,
            limits=SMALL_LIMITS if plan.cuts_commits else DEFAULT_LIMITS,
        )
        self._truth.server = self._server
        for order in plan.orders:
            self._store_definition(order.workflow)
        self._network = Network(self._server, Random(f"net {plan.seed}"), plan.faults, tally)
        self._skew = Random(f"skew {plan.seed}")
        skew = self._skew if Fault.SKEW in plan.faults else None
        self._deployment = SimulatedDeployment(plan, self._network, self._truth, skew)
        process = SimulatedProcess("callers", loop)
        backend = SimulatedBackend(process, self._network, self._server)
        self._callers = SimulatedCallers(process, backend)

    def _store_definition(self, workflow: Workflow) -> None:
        hash_ = hash_workflow(workflow)
        self._server.state.definitions[hash_] = Definition(
            hash=hash_, name=workflow.name, version=1, document=encode_workflow(workflow)
        )
        for node in workflow.nodes:
            if node.child is not None:
                self._store_definition(node.child)

    async def _run_phases(self) -> None:
        for index in range(self._deployment.process_count):
            self._deployment.start(index)
        self._callers.process.run(self._callers.run(self._plan.orders))
        for act in self._plan.acts:
            asyncio.get_running_loop().call_later(act.at, self._inject_fault, act)
        await self._run_until(FAULT_PHASE_S)
        self._repair()
        deadline = FAULT_PHASE_S + RECOVERY_S_MAX
        while not self._is_finished() and asyncio.get_running_loop().time() < deadline:
            await self._run_until(asyncio.get_running_loop().time() + POLL_INTERVAL_S)
        await self._run_until(asyncio.get_running_loop().time() + QUIET_S)
        if self._is_finished() and len(self._callers.final_states) < len(self._plan.orders):
            await self._run_until(asyncio.get_running_loop().time() + WAITERS_TIMEOUT_S)
            if len(self._callers.final_states) < len(self._plan.orders):
                raise InvariantViolation(
                    "waiters", f"callers received only {self._callers.final_states}"
                )
        if Fault.ROLLBACK not in self._plan.faults:
            self._check_caller_states()

    def _check_caller_states(self) -> None:
        """Checks that callers received the actual final states.

        Skips runs in which the store was rolled back.
        """
        for execution_id, reported_state in self._callers.final_states.items():
            state = self._truth.executions[execution_id].state
            if reported_state != state:
                raise InvariantViolation(
                    "waiters", f"{execution_id} is {state}, its caller received {reported_state}"
                )

    async def _run_until(self, end: float) -> None:
        """Runs until `end`, and raises InvariantViolation as soon as a check has failed."""
        loop = asyncio.get_running_loop()
        while (remaining_s := end - loop.time()) > 0:
            await asyncio.sleep(min(POLL_INTERVAL_S, remaining_s))
            self._deployment.check_processes()
            if self._truth.violation is not None:
                raise self._truth.violation

    def _is_finished(self) -> bool:
        expected_ids = {order.execution_id for order in self._plan.orders}
        executions = self._truth.executions
        return (
            self._callers.has_sent_all
            and expected_ids <= executions.keys()
            and all(execution.is_final for execution in executions.values())
        )

    # -- faults --------------------------------------------------------------------------------

    def _inject_fault(self, fault: PlannedFault) -> None:
        loop = asyncio.get_running_loop()
        self._trace(f"FAULT {fault.fault} {fault.target} for {fault.lasts_s:.1f} s")
        if fault.fault is Fault.ROLLBACK:
            earlier = self._server.snapshot()
            loop.call_later(fault.lasts_s, self._roll_back, earlier)
        elif fault.fault is Fault.SLOW:
            self._server.slow_until = loop.time() + fault.lasts_s
        else:
            self._inject_process_fault(fault)

    def _inject_process_fault(self, fault: PlannedFault) -> None:
        """Injects a fault into a process. The fault counts only if the process is running."""
        loop, deployment = asyncio.get_running_loop(), self._deployment
        process = deployment.find_process(fault.target)
        self._run.tally.faults[fault.fault] += process is not None and not process.has_ended
        if fault.fault is Fault.CRASH:
            deployment.kill(fault.target)
            loop.call_later(fault.lasts_s, deployment.revive, fault.target)
        elif fault.fault is Fault.RESTART:
            deployment.stop(fault.target)
            loop.call_later(fault.lasts_s + 5.0, deployment.revive, fault.target)
        elif process is not None:
            if fault.fault is Fault.SKEW:
                process.skew_s = self._skew.uniform(-SKEW_S_MAX, SKEW_S_MAX)
                return
            if fault.fault is Fault.PAUSE:
                process.pause()
            elif fault.fault is Fault.CUT_OFF:
                process.is_cut_off = True
            else:
                raise ValueError(f"'{fault.fault}' is a fault of calls, not of processes")
            loop.call_later(fault.lasts_s, deployment.revive, fault.target)

    def _on_simulator_error(
        self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]
    ) -> None:
        """Records an error of the simulator as a violation, so that the error is reported."""
        self._truth.record_violation(
            InvariantViolation("simulator", f"{context.get('exception') or context}")
        )

    def _roll_back(self, earlier: MemoryState) -> None:
        self._run.tally.faults[Fault.ROLLBACK] += self._server.has_changed_since(earlier)
        self._server.restore(earlier)
        self._callers.resend_all()

    def _repair(self) -> None:
        self._trace("EVERYTHING IS REPAIRED")
        self._network.is_healed = True
        for index in range(self._deployment.process_count):
            self._deployment.revive(index)

    async def _tear_down(self) -> None:
        for index in range(self._deployment.process_count):
            self._deployment.kill(index)
        self._callers.process.kill()
        for _ in range(5):
            await asyncio.sleep(0)

    def _trace(self, text: str) -> None:
        line = f"{asyncio.get_running_loop().time():9.4f} {text}"
        self._hash.update(line.encode())
        self._run.trace.append(line)
