"""One chaos run: submit mixed executions, make trouble meanwhile, wait, and judge the end."""

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
from runnel.settings import read_settings
from runnel.views.execution import ExecutionSummary
from tests.chaos.faults import CLOCK, TROUBLES, ChaosDeployment
from tests.chaos.fleet import Fleet
from tests.chaos.functions import NOTES
from tests.chaos.verdict import filter_unfinished, find_leftovers, find_problems, list_all_headers
from tests.chaos.workflows import SHAPES

SUBMITTED_AT_ONCE = 20
LOOK_EVERY_S = 0.2
PACE_S = 0.02
PROBLEMS_SHOWN = 20


class ChaosPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`troubles` one after the other, about `pause_s` between them; then `deadline_s` to end."""

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
        ends = ", ".join(f"{count:,} {state}" for state, count in sorted(self.ended.items()))
        first = (
            f"{self.submitted:,} submitted ({self.refused} calls refused), {ends} "
            f"after {self.seconds:.1f} s: {len(self.problems)} problems"
        )
        return "\n".join([first, *(f"  {each}" for each in self.problems[:PROBLEMS_SHOWN])])


async def run(plan: ChaosPlan) -> ChaosReport:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-chaos-")))
        redis = stack.enter_context(RedisServer())
        postgres = stack.enter_context(PostgresServer())
        environ = _build_environment(plan, folder, redis, postgres)
        roles = _build_commands(plan)
        fleet = stack.enter_context(Fleet(roles, environ, folder))
        scene = ChaosDeployment(
            fleet=fleet,
            orchestrators=tuple(place for place in roles if place.startswith("orchestrator")),
            workers=tuple(place for place in roles if place.startswith("worker")),
            redis=redis,
            postgres=postgres,
            lease_s=plan.lease_s,
            chance=random.Random(plan.seed),
        )
        async with _open_session(environ) as look:
            return await _run(plan, scene, look)


async def _run(plan: ChaosPlan, scene: ChaosDeployment, look: StoreSession) -> ChaosReport:
    report, loop = ChaosReport(), asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        group.create_task(_submit_all(plan, scene, look.client, report))
        group.create_task(_inject_faults(plan, scene))
    headers: list[ExecutionSummary] = []
    try:
        async with asyncio.timeout(plan.deadline_s):
            while len(headers) < report.submitted or filter_unfinished(headers):
                await CLOCK.sleep(LOOK_EVERY_S)
                scene.fleet.supervise()
                with suppress(StoreError):  # a server that is down is no answer
                    headers = await list_all_headers(look.client)
    except TimeoutError:
        report.problems += [
            f"{each.workflow} {each.execution_id} is still {each.status}"
            for each in filter_unfinished(headers)
        ]
        if len(headers) < report.submitted:
            report.problems.append(f"only {len(headers)} of {report.submitted} are known")
    report.seconds = loop.time() - began
    report.ended.update(str(header.status) for header in headers)
    if not report.problems:
        report.problems += await find_problems(look.client, headers)
    report.problems += [f"{place} has a traceback" for place in scene.fleet.tracebacks()]
    codes = await asyncio.to_thread(scene.fleet.end)
    report.problems += [f"{place} ended with {code}" for place, code in codes.items() if code]
    if isinstance(look.backend, RedisBackend):
        report.problems += await find_leftovers(look.backend)
    return report


async def _submit_all(
    plan: ChaosPlan, scene: ChaosDeployment, client: StoreClient, report: ChaosReport
) -> None:
    """As many before each trouble: all of them meet executions that are under way.

    A call that fails is made again: it may have been carried out, and is counted by nobody.
    """
    chance = random.Random(plan.seed)
    waiting = [chance.choice(SHAPES) for _ in range(plan.executions)]
    share = plan.executions / (len(plan.troubles) + 1)
    while waiting:
        if plan.executions - len(waiting) >= share * (scene.past + 1):
            await CLOCK.sleep(PACE_S)
            continue
        some = waiting[:SUBMITTED_AT_ONCE]
        results = await asyncio.gather(
            *(client.submit(shape.workflow) for shape in some), return_exceptions=True
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        for error in failed:
            if not isinstance(error, StoreError):
                raise error
        report.submitted += len(some) - len(failed)
        report.refused += len(failed)
        again = [
            shape
            for shape, result in zip(some, results, strict=True)
            if isinstance(result, BaseException)
        ]
        waiting = again + waiting[SUBMITTED_AT_ONCE:]
        if again:
            await CLOCK.sleep(LOOK_EVERY_S)


async def _inject_faults(plan: ChaosPlan, scene: ChaosDeployment) -> None:
    for name in plan.troubles:
        await CLOCK.sleep(plan.pause_s * scene.chance.uniform(0.5, 1.5))
        scene.fleet.supervise()
        await TROUBLES[name](scene)
        scene.past += 1


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
    }


def _build_commands(plan: ChaosPlan) -> Mapping[str, tuple[str, ...]]:
    orchestrators = {f"orchestrator-{n}": ("orchestrator",) for n in range(plan.orchestrators)}
    return orchestrators | {f"worker-{n}": ("worker",) for n in range(plan.workers)}


@asynccontextmanager
async def _open_session(environ: Mapping[str, str]) -> AsyncIterator[StoreSession]:
    async with open_store_session(read_settings(environ)) as look:
        yield look
