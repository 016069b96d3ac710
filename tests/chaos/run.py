"""One chaos run: submits mixed executions, injects faults, waits, and checks the results."""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import msgspec

from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.stores import StoreSession, open_store_session
from runnel.backends.redis.backend import RedisBackend
from runnel.client.store_client import StoreClient
from runnel.errors import StoreError
from runnel.ports.telemetry import ARCHIVE_GAP
from runnel.settings import read_settings
from runnel.views.execution import ExecutionSummary
from tests.chaos.faults import CLOCK, TROUBLES, ChaosDeployment
from tests.chaos.fleet import Fleet
from tests.chaos.functions import NOTES
from tests.chaos.verdict import filter_unfinished, find_leftovers, find_problems, list_all_headers
from tests.chaos.workflows import SHAPES

SUBMITTED_AT_ONCE = 20
POLL_INTERVAL_S = 0.2
PACE_S = 0.02
PROBLEMS_SHOWN = 20


class ChaosPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of faults. `troubles` happen in order, about `pause_s` apart.

    After the last one, all executions must end within `deadline_s`.
    """

    seed: int
    executions: int
    troubles: Sequence[str]
    orchestrators: int = 2
    workers: int = 2
    concurrency: int = 8
    lease_s: float = 1.5
    pause_s: float = 1.0
    deadline_s: float = 60.0


class ChaosReport(msgspec.Struct, kw_only=True):
    submitted: int = 0
    refused: int = 0
    ended: Counter[str] = msgspec.field(default_factory=Counter)
    seconds: float = 0.0
    problems: list[str] = msgspec.field(default_factory=list)

    def text(self) -> str:
        states = ", ".join(f"{count:,} {state}" for state, count in sorted(self.ended.items()))
        summary = (
            f"{self.submitted:,} submitted ({self.refused} calls refused), {states} "
            f"after {self.seconds:.1f} s: {len(self.problems)} problems"
        )
        return "\n".join([summary, *(f"  {problem}" for problem in self.problems[:PROBLEMS_SHOWN])])


async def run(plan: ChaosPlan) -> ChaosReport:
    async with open_deployment(plan) as (scene, session):
        return await _run(plan, scene, session)


@asynccontextmanager
async def open_deployment(
    plan: ChaosPlan, **settings: str
) -> AsyncIterator[tuple[ChaosDeployment, StoreSession]]:
    """Starts the servers and processes of a plan, and opens a client on them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-chaos-")))
        redis = stack.enter_context(RedisServer())
        postgres = stack.enter_context(PostgresServer())
        environ = _build_environment(plan, folder, redis, postgres) | settings
        roles = _build_commands(plan)
        fleet = stack.enter_context(Fleet(roles, environ, folder))
        scene = ChaosDeployment(
            fleet=fleet,
            orchestrators=tuple(name for name in roles if name.startswith("orchestrator")),
            workers=tuple(name for name in roles if name.startswith("worker")),
            redis=redis,
            postgres=postgres,
            lease_s=plan.lease_s,
            notes=Path(environ[NOTES]),
            rng=random.Random(plan.seed),
        )
        async with open_store_session(read_settings(environ)) as session:
            yield scene, session


async def _run(plan: ChaosPlan, scene: ChaosDeployment, session: StoreSession) -> ChaosReport:
    report, loop = ChaosReport(), asyncio.get_running_loop()
    started_at = loop.time()
    async with asyncio.TaskGroup() as group:
        group.create_task(_submit_all(plan, scene, session.client, report))
        group.create_task(_inject_faults(plan, scene))
    headers: list[ExecutionSummary] = []
    try:
        async with asyncio.timeout(plan.deadline_s):
            while len(headers) < report.submitted or filter_unfinished(headers):
                await CLOCK.sleep(POLL_INTERVAL_S)
                scene.fleet.supervise()
                with suppress(StoreError):  # the server is down
                    headers = await list_all_headers(session.client)
    except TimeoutError:
        report.problems += [
            f"{header.workflow} {header.execution_id} is still {header.status}"
            for header in filter_unfinished(headers)
        ]
        if len(headers) < report.submitted:
            report.problems.append(f"only {len(headers)} of {report.submitted} executions exist")
    report.seconds = loop.time() - started_at
    report.ended.update(str(header.status) for header in headers)
    if not report.problems:
        report.problems += await find_problems(session.client, headers)
    report.problems += [
        f"{name} has a traceback in its log" for name in scene.fleet.find_logs("Traceback")
    ]
    report.problems += [
        f"{name} reports a false gap" for name in scene.fleet.find_logs(ARCHIVE_GAP)
    ]
    codes = await asyncio.to_thread(scene.fleet.end)
    report.problems += [f"{name} ended with {code}" for name, code in codes.items() if code]
    if isinstance(session.backend, RedisBackend):
        report.problems += await find_leftovers(session.backend)
    return report


async def _submit_all(
    plan: ChaosPlan, scene: ChaosDeployment, client: StoreClient, report: ChaosReport
) -> None:
    """Submits an equal share before each fault, so that each one affects running executions.

    A failed call is repeated. It may have been executed; such an extra execution is not counted.
    """
    rng = random.Random(plan.seed)
    waiting = [rng.choice(SHAPES) for _ in range(plan.executions)]
    share = plan.executions / (len(plan.troubles) + 1)
    while waiting:
        if plan.executions - len(waiting) >= share * (scene.finished_faults + 1):
            await CLOCK.sleep(PACE_S)
            continue
        batch = waiting[:SUBMITTED_AT_ONCE]
        results = await asyncio.gather(
            *(client.submit(shape.workflow) for shape in batch), return_exceptions=True
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        for error in failed:
            if not isinstance(error, StoreError):
                raise error
        report.submitted += len(batch) - len(failed)
        report.refused += len(failed)
        failed_shapes = [
            shape
            for shape, result in zip(batch, results, strict=True)
            if isinstance(result, BaseException)
        ]
        waiting = failed_shapes + waiting[SUBMITTED_AT_ONCE:]
        if failed_shapes:
            await CLOCK.sleep(POLL_INTERVAL_S)


async def _inject_faults(plan: ChaosPlan, scene: ChaosDeployment) -> None:
    for name in plan.troubles:
        await CLOCK.sleep(plan.pause_s * scene.rng.uniform(0.5, 1.5))
        scene.fleet.supervise()
        await TROUBLES[name](scene)
        scene.finished_faults += 1


def _build_environment(
    plan: ChaosPlan, folder: Path, redis: RedisServer, postgres: PostgresServer
) -> dict[str, str]:
    notes = folder / "notes"
    notes.mkdir()
    return {
        NOTES: str(notes),
        "REDIS_URL": redis.url,
        "POSTGRES_URL": postgres.url,
        "RUNNEL_ALLOW_PYTHON": "tests.chaos.functions:*",
        "WORKER_CONCURRENCY": str(plan.concurrency),
        "WORKER_HEARTBEAT_INTERVAL": str(plan.lease_s / 4),
        "WORKER_HEARTBEAT_TIMEOUT": str(plan.lease_s),
        "ORCHESTRATOR_LEASE_TIMEOUT": str(plan.lease_s),
        # Shorter than a pause, so that an alarm of a process that was paused is logged.
        "ORCHESTRATOR_CHECKPOINT_INTERVAL": "1",
    }


def _build_commands(plan: ChaosPlan) -> Mapping[str, tuple[str, ...]]:
    orchestrators = {f"orchestrator-{n}": ("orchestrator",) for n in range(plan.orchestrators)}
    return orchestrators | {f"worker-{n}": ("worker",) for n in range(plan.workers)}
