"""The processes of a simulated deployment, which run the real orchestrator, reaper and worker."""

import asyncio
from random import Random

from runnel.authoring.context import Context
from runnel.authoring.registry import HandlerRegistry
from runnel.core.execution import PENDING_RUN
from runnel.core.values import Json
from runnel.core.workflow import EnginePolicy
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.partition_share import make_sharing_orchestrator
from runnel.engine.services.dead_workers import Reaper
from runnel.engine.services.watchdog import Watchdog
from runnel.engine.worker.worker import Worker, WorkerOptions
from runnel.errors import Skip
from runnel.handlers import create_builtin_registry
from runnel.ports import telemetry as names
from runnel.ports.telemetry import NullTelemetry
from runnel.testing.clock import FakeIds
from simulation.backend import SimulatedBackend
from simulation.commit_log import GroundTruth, HandlerInvocation
from simulation.faults import InvariantViolation
from simulation.network import Network
from simulation.plan import (
    FAILURE_DETECTION_S,
    FAULT_PHASE_S,
    SKEW_S_MAX,
    STOP_S_MAX,
    WINDOW,
    SimulationPlan,
)
from simulation.process import SimulatedProcess
from simulation.workload import (
    SCRIPTED_MESSAGE,
    TRANSIENT_MESSAGE,
    WORK,
    compute_output,
    is_permanent_failure,
    is_skipped,
)

LEASE_S = FAILURE_DETECTION_S
HEARTBEAT_INTERVAL_S = 0.8
DEAD_AFTER_S = FAILURE_DETECTION_S
SHUTDOWN_TIMEOUT_S = 1.0
SWEEP_S = 4.0
REPAIR_AFTER_S = 15.0
IDLE_S_MAX = 5.0
INLINE_BYTES_MAX = 100
SHARED_BYTES_MAX = 20
# The time that cancelled code takes to end. It is below the time after which a worker kills it.
CANCELLED_CODE_S = 0.4
# The restart delay of a worker that a task has crashed.
RESTART_DELAY_S = 1.0
# Log events that mean that the engine has a bug, for example a repair by the watchdog.
_BUG_EVENTS = frozenset(
    {names.COMMAND_POISONED, names.MESSAGE_UNREADABLE, names.EXECUTION_REPAIRED}
)


class SimulatedDeployment:
    """The processes of a deployment by index: first orchestrators, then workers.

    An index may have no live process.
    """

    def __init__(
        self, plan: SimulationPlan, network: Network, truth: GroundTruth, skew: Random | None
    ) -> None:
        self.process_count = plan.orchestrators + plan.workers
        self._plan = plan
        self._network = network
        self._truth = truth
        self._skew = skew
        self._processes: dict[int, SimulatedProcess] = {}
        self._stops: dict[int, asyncio.Event] = {}
        self._start_count = 0
        self._policy = EnginePolicy(
            crashes_max=plan.crashes_max,
            in_flight_max=WINDOW,
            inline_bytes_max=INLINE_BYTES_MAX,
            shared_bytes_max=SHARED_BYTES_MAX,
            keeps_exhausted_tasks=plan.keeps_exhausted,
            stop_s_max=STOP_S_MAX,
        )

    def start(self, index: int) -> None:
        self._start_count += 1
        is_orchestrator = index < self._plan.orchestrators
        name = f"{'o' if is_orchestrator else 'w'}{self._start_count}"
        process = self._processes[index] = self.create_process(name)
        stop = self._stops[index] = asyncio.Event()
        backend = SimulatedBackend(process, self._network, self._truth.server)
        main = self._run_orchestrator if is_orchestrator else self._run_worker
        process.run(main(process, backend, stop))

    def create_process(self, name: str) -> SimulatedProcess:
        skew_s = 0.0 if self._skew is None else self._skew.uniform(-SKEW_S_MAX, SKEW_S_MAX)
        return SimulatedProcess(name, asyncio.get_running_loop(), skew_s=skew_s)

    def find_process(self, index: int) -> SimulatedProcess | None:
        return self._processes.get(index)

    def kill(self, index: int) -> None:
        process = self._processes.pop(index, None)
        if process is not None:
            self._truth.trace(f"KILL {process.name}")
            process.kill()

    def stop(self, index: int) -> None:
        """Asks the process to shut down, so that it releases its leases and tasks."""
        if index in self._processes:
            self._truth.trace(f"STOP {self._processes[index].name}")
            self._processes[index].deliver(self._stops[index].set)

    def revive(self, index: int) -> None:
        """Resumes the process of this index if it is paused, and replaces it if it has ended."""
        process = self._processes.get(index)
        if process is None or process.has_ended or self._stops[index].is_set():
            self.kill(index)
            self.start(index)
        else:
            self._truth.trace(f"RESUME {process.name}")
            process.is_cut_off = False
            process.resume()

    def check_processes(self) -> None:
        """Raises InvariantViolation if a process ended with an error that was not injected."""
        for process in self._processes.values():
            if process.failure is not None:
                raise InvariantViolation("alive", f"{process.name} died of {process.failure!r}")

    async def _run_orchestrator(
        self, process: SimulatedProcess, backend: SimulatedBackend, stop: asyncio.Event
    ) -> None:
        telemetry = _SimulationTelemetry(process, self._truth)
        parts = OrchestratorDependencies(
            store=backend.store,
            archive=backend.archive,
            blobs=backend.blobs,
            clock=process.clock,
            ids=FakeIds(process.name),
            telemetry=telemetry,
            policy=self._policy,
            cached_executions_max=2,
            idle_s_max=IDLE_S_MAX,
        )
        orchestrator = make_sharing_orchestrator(parts, name=process.name, lease_s=LEASE_S)
        reaper = Reaper(
            backend.store, backend.tasks, process.clock, telemetry, dead_after_s=DEAD_AFTER_S
        )
        watchdog = Watchdog(
            parts,
            orchestrator,
            sweep_s=SWEEP_S,
            repair_after_s=REPAIR_AFTER_S,
            stale_s=FAULT_PHASE_S,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(orchestrator.run(stop))
            group.create_task(reaper.run(stop))
            group.create_task(watchdog.run(stop))

    async def _run_worker(
        self, process: SimulatedProcess, backend: SimulatedBackend, stop: asyncio.Event
    ) -> None:
        worker = Worker(
            backend.tasks,
            backend.blobs,
            self._build_handlers(process),
            process.clock,
            _SimulationTelemetry(process, self._truth),
            name=process.name,
            options=WorkerOptions(
                concurrency=self._plan.concurrency,
                beat_s=HEARTBEAT_INTERVAL_S,
                shutdown_s=SHUTDOWN_TIMEOUT_S,
                grace_s=SHUTDOWN_TIMEOUT_S,
                inline_bytes_max=INLINE_BYTES_MAX,
            ),
        )
        await worker.run(stop)

    def _build_handlers(self, process: SimulatedProcess) -> HandlerRegistry:
        truth = self._truth

        async def work(config: dict[str, Json], ctx: Context) -> Json:
            task = ctx._task  # noqa: SLF001 - user code has no access to nonce and tag
            token, run = task.token, truth.find_run(task.token) or PENDING_RUN
            invocation = HandlerInvocation(
                template_values=config.get("of"),
                inputs=dict(ctx.inputs),
                execution_input=ctx.execution_input,
                rate_limit_tag=task.resource_tag,
                idempotency_key=ctx.idempotency_key,
            )
            truth.handler_started(process.name, token, invocation)
            try:
                if run.losses < int(str(config.get("kills", 0))):
                    self._kill_worker(process)
                await process.clock.sleep(float(str(config["takes"])))
            except asyncio.CancelledError:
                await process.clock.sleep(CANCELLED_CODE_S)
                raise
            finally:
                truth.handler_ended(process.name, token)
            if run.failures < int(str(config["fails"])):
                raise ConnectionError(TRANSIENT_MESSAGE)
            if is_permanent_failure(config, ctx.execution_id):
                raise ValueError(SCRIPTED_MESSAGE)
            if is_skipped(config, ctx.item_index):
                raise Skip(SCRIPTED_MESSAGE)
            return compute_output(config, config.get("of"), ctx.node_id, ctx.item_index)

        registry = create_builtin_registry()
        registry.register(WORK, work)
        return registry

    def _kill_worker(self, process: SimulatedProcess) -> None:
        """Kills the worker whose code is running, as a segmentation fault would."""
        index = next(index for index, running in self._processes.items() if running is process)
        self._truth.tally.killed_workers += 1
        self.kill(index)
        asyncio.get_running_loop().call_later(RESTART_DELAY_S, self.revive, index)


class _SimulationTelemetry(NullTelemetry):
    """Ends the simulation when the engine logs a bug of its own."""

    def __init__(self, process: SimulatedProcess, truth: GroundTruth) -> None:
        self._process = process
        self._truth = truth

    def event(self, name: str, **fields: object) -> None:
        if self._process.is_dead:
            return
        self._truth.trace(f"{self._process.name}: {name} {fields}")
        if name in _BUG_EVENTS or "Traceback" in str(fields.get("error")):
            self._truth.record_violation(
                InvariantViolation("bugs", f"{self._process.name}: {name} {fields}")
            )
