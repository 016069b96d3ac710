"""One run: builds what a plan names, lets it happen, and judges how it ended."""

import asyncio
import hashlib
from random import Random

from runnel.backends.memory.store import MemoryState
from runnel.core.workflow import Workflow, encode_workflow, hash_workflow
from runnel.ports.archive import Definition
from runnel.ports.store import CommitLimits
from runnel.testing.clock import FakeIds
from simulation.backend import SimulatedBackend
from simulation.callers import Callers
from simulation.checks import ALL
from simulation.commit_log import Truth
from simulation.deployment import Deployment
from simulation.faults import Broken, Fault, Tally
from simulation.features import Features
from simulation.network import Network
from simulation.plan import SKEW_S_MAX, TROUBLE_S, Act, Plan
from simulation.process import Process, StandstillError, VirtualLoop
from simulation.server import Server

# After the last fault: sleeps, retries, leases that run out, clocks that differ.
REPAIRED_S = 400.0
# What may still be under way when the last execution has ended: a release, a stop, a beat.
REST_S = 4.0
# Those who wait for an execution of another process look every few seconds.
WAITERS_S = 10.0
LOOK_S = 0.5
LIMITS = CommitLimits()
# Small enough that single decisions have to be cut into several commits.
SMALL_LIMITS = CommitLimits(commands=4, writes=6, size_bytes=4_000)


class Run:
    """What came of a plan; `digest` is the same for every run of the same plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally = Tally()
        self.story: list[str] = []
        self.broken: Broken | None = None
        self.digest = ""
        self.lasted_s = 0.0


def simulate(plan: Plan) -> Run:
    run = Run(plan)
    world = _World(plan, run)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            runner.run(world.run())
        except StandstillError as standstill:
            run.broken = world.found or Broken("standstill", str(standstill))
    return run


class _World:
    def __init__(self, plan: Plan, run: Run) -> None:
        self._plan = plan
        self._run = run
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def found(self) -> Broken | None:
        return self._truth.broken

    async def run(self) -> None:
        self._build()
        try:
            await self._live()
            self._truth.end()
            broken = self._truth.broken
        except Broken as found:
            broken = self._truth.broken or found
        self._run.broken = broken
        self._run.digest = self._hash.hexdigest()
        self._run.lasted_s = asyncio.get_running_loop().time()
        await self._tear_down()

    def _build(self) -> None:
        plan, tally = self._plan, self._run.tally
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_own_error)
        tally.executions = len(plan.orders)
        self._truth = Truth(
            lambda truth: [Features(truth), *(check(truth) for check in ALL)],
            plan,
            tally,
            self._tell,
        )
        self._server = Server(
            Process("store", loop).clock,
            FakeIds("s"),
            self._truth,
            partitions=plan.partitions,
            limits=SMALL_LIMITS if plan.cuts_commits else LIMITS,
        )
        self._truth.server = self._server
        for order in plan.orders:
            self._define(order.workflow)
        self._network = Network(self._server, Random(f"net {plan.seed}"), plan.faults, tally)
        self._skew = Random(f"skew {plan.seed}")
        skew = self._skew if Fault.SKEW in plan.faults else None
        self._deployment = Deployment(plan, self._network, self._truth, skew)
        process = Process("callers", loop)
        backend = SimulatedBackend(process, self._network, self._server)
        self._callers = Callers(process, backend)

    def _define(self, workflow: Workflow) -> None:
        hash_ = hash_workflow(workflow)
        self._server.state.definitions[hash_] = Definition(
            hash=hash_, name=workflow.name, version=1, document=encode_workflow(workflow)
        )
        for node in workflow.nodes:
            if node.child is not None:
                self._define(node.child)

    async def _live(self) -> None:
        for place in range(self._deployment.places):
            self._deployment.start(place)
        self._callers.process.run(self._callers.run(self._plan.orders))
        for act in self._plan.acts:
            asyncio.get_running_loop().call_later(act.at, self._act, act)
        await self._until(TROUBLE_S)
        self._repair()
        deadline = TROUBLE_S + REPAIRED_S
        while not self._is_over() and asyncio.get_running_loop().time() < deadline:
            await self._until(asyncio.get_running_loop().time() + LOOK_S)
        await self._until(asyncio.get_running_loop().time() + REST_S)
        if self._is_over() and len(self._callers.finals) < len(self._plan.orders):
            await self._until(asyncio.get_running_loop().time() + WAITERS_S)
            if len(self._callers.finals) < len(self._plan.orders):
                raise Broken("waiters", f"told of {self._callers.finals} only")
        if Fault.ROLLBACK not in self._plan.faults:
            self._check_told()

    def _check_told(self) -> None:
        """What callers were told is what came of it, unless the store forgot that."""
        for execution_id, told in self._callers.finals.items():
            found = self._truth.executions[execution_id].state
            if told != found:
                raise Broken("waiters", f"{execution_id} is {found}, its caller was told {told}")

    async def _until(self, end: float) -> None:
        """Looks now and then; raises Broken for what was found meanwhile."""
        loop = asyncio.get_running_loop()
        while (left_s := end - loop.time()) > 0:
            await asyncio.sleep(min(LOOK_S, left_s))
            self._deployment.check()
            if self._truth.broken is not None:
                raise self._truth.broken

    def _is_over(self) -> bool:
        wanted = {order.execution_id for order in self._plan.orders}
        executions = self._truth.executions
        return (
            self._callers.has_sent_all
            and wanted <= executions.keys()
            and all(execution.is_final for execution in executions.values())
        )

    # -- faults --------------------------------------------------------------------------------

    def _act(self, act: Act) -> None:
        loop = asyncio.get_running_loop()
        self._tell(f"FAULT {act.fault} {act.target} for {act.lasts_s:.1f} s")
        if act.fault is Fault.ROLLBACK:
            earlier = self._server.snapshot()
            loop.call_later(act.lasts_s, self._set_back, earlier)
        elif act.fault is Fault.SLOW:
            self._server.slow_until = loop.time() + act.lasts_s
        else:
            self._strike(act)

    def _strike(self, act: Act) -> None:
        """Counts if there is a process to be struck."""
        loop, deployment = asyncio.get_running_loop(), self._deployment
        process = deployment.process(act.target)
        self._run.tally.faults[act.fault] += process is not None and not process.has_ended
        if act.fault is Fault.CRASH:
            deployment.kill(act.target)
            loop.call_later(act.lasts_s, deployment.revive, act.target)
        elif act.fault is Fault.RESTART:
            deployment.stop(act.target)
            loop.call_later(act.lasts_s + 5.0, deployment.revive, act.target)
        elif process is not None:
            if act.fault is Fault.SKEW:
                process.skew_s = self._skew.uniform(-SKEW_S_MAX, SKEW_S_MAX)
                return
            if act.fault is Fault.PAUSE:
                process.pause()
            elif act.fault is Fault.CUT_OFF:
                process.is_cut_off = True
            else:
                raise ValueError(f"'{act.fault}' happens to calls, not to processes")
            loop.call_later(act.lasts_s, deployment.revive, act.target)

    def _on_own_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """Whatever goes wrong in the simulator itself is a finding, or it would hide others."""
        self._truth.found(Broken("simulator", f"{context.get('exception') or context}"))

    def _set_back(self, earlier: MemoryState) -> None:
        self._run.tally.faults[Fault.ROLLBACK] += self._server.has_moved_since(earlier)
        self._server.restore(earlier)
        self._callers.send_again()

    def _repair(self) -> None:
        self._tell("EVERYTHING IS REPAIRED")
        self._network.is_healed = True
        for place in range(self._deployment.places):
            self._deployment.revive(place)

    async def _tear_down(self) -> None:
        for place in range(self._deployment.places):
            self._deployment.kill(place)
        self._callers.process.kill()
        for _ in range(5):
            await asyncio.sleep(0)

    def _tell(self, what: str) -> None:
        line = f"{asyncio.get_running_loop().time():9.4f} {what}"
        self._hash.update(line.encode())
        self._run.story.append(line)
