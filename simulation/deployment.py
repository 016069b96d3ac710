"""The processes of a simulated deployment: the real orchestrator, reaper and worker in each."""

import asyncio
from collections.abc import Sequence
from random import Random

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.core.effects import Task
from runnel.core.events import AnyEvent
from runnel.core.execution import PENDING
from runnel.core.graph import Graph
from runnel.core.values import Json
from runnel.core.workflow import Policy
from runnel.engine.orchestrator import Parts
from runnel.engine.orchestrator.partition_share import sharing_orchestrator
from runnel.engine.services.reaper import Reaper
from runnel.engine.services.watchdog import Watchdog
from runnel.engine.worker.worker import Worker
from runnel.errors import Skip
from runnel.handlers import builtin_registry
from runnel.ports import telemetry as names
from runnel.ports.store import Header
from runnel.testing.clock import FakeIds
from simulation.backend import SimulatedBackend
from simulation.commit_log import Given, Truth
from simulation.faults import Broken
from simulation.network import Network
from simulation.plan import SILENCE_S, SKEW_S_MAX, TROUBLE_S, WINDOW, Plan
from simulation.process import Process
from simulation.workload import BROKEN_LINE, SAYS_SO, WORK, is_bad, output_of, skips

LEASE_S = SILENCE_S
BEAT_S = 0.8
DEAD_AFTER_S = SILENCE_S
SHUTDOWN_S = 1.0
SWEEP_S = 4.0
REPAIR_AFTER_S = 15.0
IDLE_S = 5.0
INLINE_BYTES_MAX = 100
SHARED_BYTES_MAX = 20
# How long a worker stays away that a task has taken down.
AWAY_S = 1.0
# The watchdog is a net that nothing should ever fall into.
_BUGS = frozenset({names.COMMAND_POISONED, names.MESSAGE_UNREADABLE, names.EXECUTION_REPAIRED})


class Deployment:
    """Numbered places: first the orchestrators, then the workers; each has a process, or none."""

    def __init__(self, plan: Plan, network: Network, truth: Truth, skew: Random | None) -> None:
        self.places = plan.orchestrators + plan.workers
        self._plan = plan
        self._network = network
        self._truth = truth
        self._skew = skew
        self._processes: dict[int, Process] = {}
        self._stops: dict[int, asyncio.Event] = {}
        self._births = 0
        self._policy = Policy(
            losses_max=plan.losses_max,
            window=WINDOW,
            inline_bytes_max=INLINE_BYTES_MAX,
            shared_bytes_max=SHARED_BYTES_MAX,
            keeps_exhausted=plan.keeps_exhausted,
        )

    def start(self, place: int) -> None:
        self._births += 1
        is_orchestrator = place < self._plan.orchestrators
        name = f"{'o' if is_orchestrator else 'w'}{self._births}"
        process = self._processes[place] = self.new_process(name)
        stop = self._stops[place] = asyncio.Event()
        backend = SimulatedBackend(process, self._network, self._truth.server)
        main = self._orchestrate if is_orchestrator else self._work
        process.run(main(process, backend, stop))

    def new_process(self, name: str) -> Process:
        skew_s = 0.0 if self._skew is None else self._skew.uniform(-SKEW_S_MAX, SKEW_S_MAX)
        return Process(name, asyncio.get_running_loop(), skew_s=skew_s)

    def process(self, place: int) -> Process | None:
        return self._processes.get(place)

    def kill(self, place: int) -> None:
        process = self._processes.pop(place, None)
        if process is not None:
            self._truth.tell(f"KILL {process.name}")
            process.kill()

    def stop(self, place: int) -> None:
        """In good order: it gives back what it has."""
        if place in self._processes:
            self._truth.tell(f"STOP {self._processes[place].name}")
            self._processes[place].deliver(self._stops[place].set)

    def revive(self, place: int) -> None:
        """Whatever has happened to it: a living process, or a new one, has the place."""
        process = self._processes.get(place)
        if process is None or process.has_ended or self._stops[place].is_set():
            self.kill(place)
            self.start(place)
        else:
            self._truth.tell(f"GO ON {process.name}")
            process.is_cut_off = False
            process.go_on()

    def check(self) -> None:
        """Raises Broken for a process that died of itself."""
        for process in self._processes.values():
            if process.failure is not None:
                raise Broken("alive", f"{process.name} died of {process.failure!r}")

    async def _orchestrate(
        self, process: Process, backend: SimulatedBackend, stop: asyncio.Event
    ) -> None:
        telemetry = _Telemetry(process, self._truth)
        parts = Parts(
            store=backend.store,
            archive=backend.archive,
            blobs=backend.blobs,
            clock=process.clock,
            ids=FakeIds(process.name),
            telemetry=telemetry,
            policy=self._policy,
            cached_executions_max=2,
            idle_s_max=IDLE_S,
        )
        orchestrator = sharing_orchestrator(parts, name=process.name, lease_s=LEASE_S)
        reaper = Reaper(
            backend.store, backend.tasks, process.clock, telemetry, dead_after_s=DEAD_AFTER_S
        )
        watchdog = Watchdog(
            parts, orchestrator, sweep_s=SWEEP_S, repair_after_s=REPAIR_AFTER_S, stale_s=TROUBLE_S
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(orchestrator.run(stop))
            group.create_task(reaper.run(stop))
            group.create_task(watchdog.run(stop))

    async def _work(self, process: Process, backend: SimulatedBackend, stop: asyncio.Event) -> None:
        worker = Worker(
            backend.tasks,
            backend.blobs,
            self._handlers(process),
            process.clock,
            _Telemetry(process, self._truth),
            name=process.name,
            concurrency=self._plan.concurrency,
            beat_s=BEAT_S,
            shutdown_s=SHUTDOWN_S,
            grace_s=SHUTDOWN_S,
            inline_bytes_max=INLINE_BYTES_MAX,
        )
        await worker.run(stop)

    def _handlers(self, process: Process) -> HandlerRegistry:
        truth = self._truth

        async def work(config: dict[str, Json], ctx: Context) -> Json:
            task = ctx._task  # noqa: SLF001 - nonce and tag are no business of user code
            token, run = task.token, truth.run_of(task.token) or PENDING
            given = Given(
                of=config.get("of"),
                inputs=dict(ctx.inputs),
                execution_input=ctx.execution_input,
                tag=task.resource_tag,
                key=ctx.idempotency_key,
            )
            truth.begins(process.name, token, given)
            try:
                if run.losses < int(str(config.get("kills", 0))):
                    self._take_down(process)
                await process.clock.sleep(float(str(config["takes"])))
            finally:
                truth.ends(process.name, token)
            if run.failures < int(str(config["fails"])):
                raise ConnectionError(BROKEN_LINE)
            if is_bad(config, ctx.execution_id):
                raise ValueError(SAYS_SO)
            if skips(config, ctx.item_index):
                raise Skip(SAYS_SO)
            return output_of(config, config.get("of"), ctx.node_id, ctx.item_index)

        registry = builtin_registry()
        registry.register(WORK, work)
        return registry

    def _take_down(self, process: Process) -> None:
        """The code that runs takes its worker with it, as a segmentation fault would."""
        place = next(place for place, each in self._processes.items() if each is process)
        self._truth.tally.killed_workers += 1
        self.kill(place)
        asyncio.get_running_loop().call_later(AWAY_S, self.revive, place)


class _Telemetry:
    """Whatever Runnel calls a bug of its own ends the simulation."""

    def __init__(self, process: Process, truth: Truth) -> None:
        self._process = process
        self._truth = truth

    def event(self, name: str, **fields: object) -> None:
        if self._process.is_dead:
            return
        self._truth.tell(f"{self._process.name}: {name} {fields}")
        if name in _BUGS or "Traceback" in str(fields.get("error")):
            self._truth.found(Broken("bugs", f"{self._process.name}: {name} {fields}"))

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: Header | None,
        graph: Graph | None = None,
    ) -> None:
        """The store tells the truth by itself."""

    def started(self, task: Task, worker: str, at: float) -> None:
        """The claim has told already."""

    def ended(self, task: Task, outcome: str, took_s: float) -> None:
        """The report tells."""

    def measured(self, name: str, value: float) -> None:
        """Nobody looks."""
