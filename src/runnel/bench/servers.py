"""The two servers that a measurement uses: private ones, or a corner of those that are named."""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

import asyncpg
import msgspec

from runnel.app.private_servers.guardian import children_of
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.private_servers.server import PrivateServer, ServerProcess
from runnel.app.stores import Look, looking
from runnel.backends.postgres.database import DRIVER_ERRORS
from runnel.backends.postgres.migrations import quoted
from runnel.backends.redis.connection_pool import Lines
from runnel.bench.setup import Ends, ToldEnds, clean_environment, diamond, run_all
from runnel.client.store_client import Client
from runnel.core.states import EXECUTION_FINAL
from runnel.engine.clock import RealClock
from runnel.errors import ServerFailedError, StoreError
from runnel.ports.clock import Clock
from runnel.settings import read_settings

PREFIX = "runnel-bench-"


class Servers(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is the prefix of all keys and the schema of all tables: nobody else's.

    The private ones are there when they were started for this.
    """

    redis_url: str
    postgres_url: str | None
    name: str
    redis: RedisServer | None = None
    postgres: PostgresServer | None = None

    @property
    def is_private(self) -> bool:
        return self.redis is not None

    def pids(self) -> dict[str, list[int]]:
        return {
            kind: [server.pid, *children_of(server.pid)]
            for kind, server in (("redis", self.redis), ("postgres", self.postgres))
            if server is not None and server.pid is not None
        }


@contextmanager
def servers(
    redis_url: str | None = None, postgres_url: str | None = None, *, nonce: str
) -> Iterator[Servers]:
    """As they are run in earnest: on disk, Redis with an fsync every second, PostgreSQL with one
    for each transaction.
    """
    name = f"{PREFIX}{nonce}"
    if redis_url is not None:
        yield Servers(redis_url=redis_url, postgres_url=postgres_url, name=name)
        return
    with ExitStack() as stack:
        redis = RedisServer(storage="disk")
        postgres = PostgresServer(storage="disk", fsync=True)
        for each in (redis, postgres):
            _open(stack, each)
        yield Servers(
            redis_url=redis.url,
            postgres_url=postgres.url,
            name=name,
            redis=redis,
            postgres=postgres,
        )


def _open(stack: ExitStack, server: PrivateServer) -> None:
    stack.enter_context(server)


# Questions to PostgreSQL itself, beside the deployment that is measured.

CALL_S = 30.0


@asynccontextmanager
async def asking(postgres_url: str) -> AsyncIterator[Any]:
    """A connection of asyncpg; whatever goes wrong with it leaves as StoreError."""
    try:
        connection = await asyncpg.connect(postgres_url, timeout=CALL_S)
        try:
            yield connection
        finally:
            await connection.close(timeout=CALL_S)
    except DRIVER_ERRORS as error:
        raise StoreError(f"PostgreSQL: {str(error) or 'no answer in time'}") from error


# Removes what a measurement has left on servers that are not its own.

KEYS_AT_ONCE = 1_000


async def remove_traces(servers: Servers, clock: Clock) -> int:
    """All keys and tables of its name; returns how many keys there were.

    Raises StoreError, which says what is left, after all was removed from the server that answers.
    """
    try:
        return await _remove_keys(servers, clock)
    finally:
        if servers.postgres_url is not None:
            await _remove_tables(servers.postgres_url, servers.name)


async def _remove_tables(url: str, schema: str) -> None:
    try:
        async with asking(url) as connection:
            await connection.execute(f"DROP SCHEMA IF EXISTS {quoted(schema)} CASCADE")
    except StoreError as error:
        raise _left("PostgreSQL", f"the schema {schema}", error) from error


async def _remove_keys(servers: Servers, clock: Clock) -> int:
    lines = Lines(servers.redis_url, clock, call_s=CALL_S)
    removed, place = 0, b"0"
    try:
        while True:
            place, keys = await lines.call(
                "SCAN", place, "MATCH", f"{servers.name}:*", "COUNT", KEYS_AT_ONCE
            )
            if keys:
                removed += await lines.call("UNLINK", *keys)
            if place == b"0":
                return removed
    except StoreError as error:
        raise _left("Redis", f"keys that begin with {servers.name}", error) from error
    finally:
        await lines.close()


def _left(kind: str, what: str, error: StoreError) -> StoreError:
    return StoreError(f"{kind}: {what} may be left on it: {str(error).removeprefix(f'{kind}: ')}")


# Orchestrators and workers as processes of their own, which can be killed, paused and replaced.
#
# They end with this process at the latest, however that ends, and by force: nobody needs what
# they would tidy up.

LOG_LINES = 5
FLEET_POLL_S = 0.5


class Fleet:
    """`modules` are the arguments of Python by the name of a place; each place has one process.

    Modules that are not Runnel's are found in the folders `import_from`.
    """

    def __init__(
        self,
        modules: Mapping[str, Sequence[str]],
        environ: Mapping[str, str],
        folder: Path,
        *,
        import_from: Sequence[Path] = (),
    ) -> None:
        self._modules = modules
        self._environ = clean_environment(environ, import_from)
        self._folder = folder
        self._processes: dict[str, ServerProcess] = {}

    def __enter__(self) -> Self:
        try:
            for place in self._modules:
                self.start(place)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kill_all()

    def start(self, place: str) -> None:
        self._processes[place] = ServerProcess(
            [sys.executable, "-m", *self._modules[place]],
            folder=self._folder,
            log=self._log(place),
            user=None,
            environ=self._environ,
        )

    def pid(self, place: str) -> int:
        return self._processes[place].pid

    def pids(self) -> dict[str, int]:
        return {place: process.pid for place, process in self._processes.items()}

    def ended(self) -> Mapping[str, str]:
        """Places whose process has ended by itself, and the last that it wrote."""
        return {
            place: "\n".join(self._log(place).read_text(errors="replace").splitlines()[-LOG_LINES:])
            for place, process in self._processes.items()
            if process.has_ended
        }

    @asynccontextmanager
    async def watched(self, clock: Clock) -> AsyncIterator[None]:
        """Raises ServerFailedError, in a group, soon after a process has ended by itself: whoever
        waits for what it was to do would wait for ever.
        """
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(clock))
            try:
                yield
            finally:
                watching.cancel()

    async def _watch(self, clock: Clock) -> NoReturn:
        while True:
            for place, said in self.ended().items():
                raise ServerFailedError(place, "ended in the middle", log=said)
            await clock.sleep(FLEET_POLL_S)

    def kill(self, place: str) -> None:
        """As kill -9 does."""
        self._processes.pop(place).kill()

    def replace(self, place: str) -> None:
        self.kill(place)
        self.start(place)

    def pause(self, place: str) -> None:
        self._processes[place].pause()

    def resume(self, place: str) -> None:
        self._processes[place].resume()

    def _kill_all(self) -> None:
        while self._processes:
            self._processes.popitem()[1].kill()

    def _log(self, place: str) -> Path:
        return self._folder / f"{place}.log"


# Orchestrators and workers on Redis and PostgreSQL, as `runnel` starts them.

WORKER: Sequence[str] = ("runnel", "worker", "--app", "runnel.bench.setup:handlers")
ORCHESTRATOR: Sequence[str] = ("runnel", "orchestrator")
LOOK_EVERY_S = 0.02
START_LIMIT_S = 30.0
WARMING = 20


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """How many processes, the slots of each worker, and settings by the name of their variable."""

    concurrency: int = 4
    workers: int = 1
    orchestrators: int = 1
    environ: Mapping[str, str] = {}


class ServerSite:
    def __init__(self, look: Look, fleet: Fleet, servers: Servers) -> None:
        self.client: Client = look.client
        self.clock: Clock = look.clock
        self.fleet = fleet
        self.servers = servers
        self._look = look

    def ends(self, *, rest_s: float = 0.0) -> AbstractAsyncContextManager[Ends]:
        return ToldEnds(self._look, rest_s).told()

    def pids(self) -> Mapping[str, Sequence[int]]:
        """The submitting process is not among them: a user's own would be elsewhere."""
        found: dict[str, list[int]] = {}
        for place, pid in self.fleet.pids().items():
            found.setdefault(place.partition("-")[0], []).append(pid)
        return found

    async def until_owned(self, pids: Collection[int]) -> None:
        """All partitions by all of these processes, and by nobody else."""
        end = self.clock.monotonic() + START_LIMIT_S
        while await self._owners() != set(pids):
            for place, said in self.fleet.ended().items():
                raise ServerFailedError(place, "ended while it started", log=said)
            if self.clock.monotonic() > end:
                raise ServerFailedError(
                    "orchestrator", f"did not own its partitions within {START_LIMIT_S:g} s"
                )
            await self.clock.sleep(LOOK_EVERY_S)

    async def _owners(self) -> set[int | None]:
        """Their process ids; None is there when somebody is missing."""
        store = self._look.backend.store
        leases = [await store.observe(number) for number in await store.partitions()]
        return {None if lease is None else int(lease.owner.split("-")[-2]) for lease in leases}


@asynccontextmanager
async def on_servers(servers: Servers, layout: Layout) -> AsyncIterator[ServerSite]:
    """All processes are at work and warm; on others' servers, nothing is left of it afterwards."""
    environ = _environ(servers, layout)
    settings = read_settings(clean_environment(environ))
    roles = {f"orchestrator-{each}": ORCHESTRATOR for each in range(layout.orchestrators)}
    roles |= {f"worker-{each}": WORKER for each in range(layout.workers)}
    async with looking(settings) as look:
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-"))
                fleet = stack.enter_context(Fleet(roles, environ, Path(folder)))
                site = ServerSite(look, fleet, servers)
                await site.until_owned(
                    [pid for place, pid in fleet.pids().items() if place.startswith("orch")]
                )
                async with fleet.watched(look.clock):
                    await run_all(site, diamond(), WARMING)
                    yield site
        finally:
            if not servers.is_private:
                await look.backend.close()  # a submit that was given up may be under way still
                await remove_traces(servers, look.clock)


def _environ(servers: Servers, layout: Layout) -> dict[str, str]:
    archive = {} if servers.postgres_url is None else {"POSTGRES_URL": servers.postgres_url}
    return {
        "REDIS_URL": servers.redis_url,
        "REDIS_PREFIX": servers.name,
        "POSTGRES_SCHEMA": servers.name,
        "WORKER_CONCURRENCY": str(layout.concurrency),
        "RUNNEL_LOG_LEVEL": "warning",
        **archive,
        **layout.environ,
    }


# Waits until the archive has all that was run: nobody else's measurement is to pay for it.

ARCHIVE_POLL_S = 0.05
WITHIN_S = 120.0


async def settle(*corners: Servers) -> None:
    """Waits until the archive has all that was run in these corners of one server."""
    postgres_url = corners[0].postgres_url
    if postgres_url is not None:
        await until_archived(postgres_url, [each.name for each in corners], RealClock())


async def until_archived(postgres_url: str, schemas: Collection[str], clock: Clock) -> None:
    """All executions of these schemas have ended, as the archive has it.

    It is far behind when the last of many has ended: of 2,000 diamonds, 600 to 2,000 were not there
    yet, and it took 0.8 to 1.1 s to bring them. Raises StoreError if that takes too long.
    """
    final = [state.value for state in EXECUTION_FINAL]
    end = clock.monotonic() + WITHIN_S
    async with asking(postgres_url) as connection:
        for schema in schemas:
            question = f"SELECT count(*) FROM {quoted(schema)}.executions WHERE state <> ALL ($1)"  # noqa: S608  # quoted
            while left := await connection.fetchval(question, final):
                if clock.monotonic() > end:
                    problem = f"{left} executions were not archived within {WITHIN_S:g} s"
                    raise StoreError(f"PostgreSQL: {problem}")
                await clock.sleep(ARCHIVE_POLL_S)
