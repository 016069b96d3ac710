"""Redis, PostgreSQL and the processes of a measurement, on private servers or those of the user."""

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

from runnel.app.private_servers.guardian import list_children
from runnel.app.private_servers.postgres import PostgresServer
from runnel.app.private_servers.redis import RedisServer
from runnel.app.private_servers.server import ServerProcess
from runnel.app.stores import StoreSession, open_store_session
from runnel.backends.postgres.database import DRIVER_ERRORS
from runnel.backends.postgres.migrations import quote_identifier
from runnel.backends.redis.connection_pool import RedisConnectionPool
from runnel.backends.redis.options import RedisOptions
from runnel.bench.deployment import (
    CompletionWaiter,
    EngineOnlyWork,
    FeedCompletionWaiter,
    clean_environment,
    run_all,
)
from runnel.bench.workflows import build_diamond
from runnel.client.store_client import StoreClient
from runnel.core.states import FINAL_EXECUTION_STATES
from runnel.engine.clock import RealClock
from runnel.errors import ServerFailedError, StoreError
from runnel.ports.clock import Clock
from runnel.settings import read_settings

NAME_PREFIX = "runnel-bench-"


class BenchmarkServers(msgspec.Struct, frozen=True, kw_only=True):
    """The servers of a measurement.

    `name` is the unique prefix of all keys in Redis, and the schema of all tables in PostgreSQL.
    `redis` and `postgres` are set if the servers are private.
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
            kind: [server.pid, *list_children(server.pid)]
            for kind, server in (("redis", self.redis), ("postgres", self.postgres))
            if server is not None and server.pid is not None
        }


@contextmanager
def open_servers(
    redis_url: str | None = None, postgres_url: str | None = None, *, nonce: str
) -> Iterator[BenchmarkServers]:
    """Starts private servers with production settings, unless `redis_url` is given.

    The files of private servers are on disk. Redis runs fsync every second, and PostgreSQL with
    each transaction.
    """
    name = f"{NAME_PREFIX}{nonce}"
    if redis_url is not None:
        yield BenchmarkServers(redis_url=redis_url, postgres_url=postgres_url, name=name)
        return
    with ExitStack() as stack:
        redis = RedisServer(storage="disk")
        postgres = PostgresServer(storage="disk", fsync=True)
        for server in (redis, postgres):
            stack.enter_context(server)
        yield BenchmarkServers(
            redis_url=redis.url,
            postgres_url=postgres.url,
            name=name,
            redis=redis,
            postgres=postgres,
        )


# Direct queries to PostgreSQL, outside the measured deployment.

CALL_TIMEOUT_S = 30.0


@asynccontextmanager
async def connect_postgres(postgres_url: str) -> AsyncIterator[Any]:
    """Opens a connection of asyncpg; raises its errors as StoreError."""
    try:
        connection = await asyncpg.connect(postgres_url, timeout=CALL_TIMEOUT_S)
        try:
            yield connection
        finally:
            await connection.close(timeout=CALL_TIMEOUT_S)
    except DRIVER_ERRORS as error:
        raise StoreError(f"PostgreSQL: {str(error) or 'no response in time'}") from error


# Removes all data that a measurement has left on servers of the user.

SCAN_COUNT = 1_000


async def remove_traces(servers: BenchmarkServers, clock: Clock) -> int:
    """Removes all keys and tables of the measurement; returns the number of keys.

    If one server does not respond, the data on the other server is still removed. The raised
    StoreError names the remaining data.
    """
    try:
        return await _remove_keys(servers, clock)
    finally:
        if servers.postgres_url is not None:
            await _remove_tables(servers.postgres_url, servers.name)


async def _remove_tables(url: str, schema: str) -> None:
    try:
        async with connect_postgres(url) as connection:
            await connection.execute(f"DROP SCHEMA IF EXISTS {quote_identifier(schema)} CASCADE")
    except StoreError as error:
        raise _build_leftover_error("PostgreSQL", f"the schema {schema}", error) from error


async def _remove_keys(servers: BenchmarkServers, clock: Clock) -> int:
    connections = RedisConnectionPool(
        servers.redis_url, clock, RedisOptions(call_timeout_s=CALL_TIMEOUT_S)
    )
    removed, cursor = 0, b"0"
    try:
        while True:
            cursor, keys = await connections.call(
                "SCAN", cursor, "MATCH", f"{servers.name}:*", "COUNT", SCAN_COUNT
            )
            if keys:
                removed += await connections.call("UNLINK", *keys)
            if cursor == b"0":
                return removed
    except StoreError as error:
        raise _build_leftover_error(
            "Redis", f"keys that begin with {servers.name}", error
        ) from error
    finally:
        await connections.close()


def _build_leftover_error(kind: str, leftovers: str, error: StoreError) -> StoreError:
    return StoreError(
        f"{kind}: {leftovers} may be left on it: {str(error).removeprefix(f'{kind}: ')}"
    )


# Orchestrators and workers as child processes, which can be killed, paused and replaced.
#
# The child processes are killed when this process ends for any reason. The child processes need no
# clean shutdown.

LOG_LINES = 5
PROCESS_POLL_INTERVAL_S = 0.5


class ProcessFleet:
    """The child processes of a measurement, by name.

    `commands` has the arguments of `python -m` for each name.

    The processes can import modules from the folders `import_from`.
    """

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        environ: Mapping[str, str],
        folder: Path,
        *,
        import_from: Sequence[Path] = (),
    ) -> None:
        self._commands = commands
        self._environ = clean_environment(environ, import_from)
        self._folder = folder
        self._processes: dict[str, ServerProcess] = {}

    def __enter__(self) -> Self:
        try:
            for name in self._commands:
                self.start(name)
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

    def start(self, name: str) -> None:
        self._processes[name] = ServerProcess(
            [sys.executable, "-m", *self._commands[name]],
            folder=self._folder,
            log=self._log_path(name),
            user=None,
            environ=self._environ,
        )

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def find_ended(self) -> Mapping[str, str]:
        """Returns the processes that have ended by themselves: names and last log lines."""
        return {
            name: "\n".join(
                self._log_path(name).read_text(errors="replace").splitlines()[-LOG_LINES:]
            )
            for name, process in self._processes.items()
            if process.has_ended
        }

    @asynccontextmanager
    async def watch(self, clock: Clock) -> AsyncIterator[None]:
        """Raises ServerFailedError in an ExceptionGroup if a process ends by itself.

        Without this check, the caller would wait forever for the work of that process.
        """
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(clock))
            try:
                yield
            finally:
                watching.cancel()

    async def _watch(self, clock: Clock) -> NoReturn:
        while True:
            for name, log in self.find_ended().items():
                raise ServerFailedError(name, "ended during the measurement", log=log)
            await clock.sleep(PROCESS_POLL_INTERVAL_S)

    def kill(self, name: str) -> None:
        """Kills a process with SIGKILL."""
        self._processes.pop(name).kill()

    def replace(self, name: str) -> None:
        self.kill(name)
        self.start(name)

    def pause(self, name: str) -> None:
        self._processes[name].pause()

    def resume(self, name: str) -> None:
        self._processes[name].resume()

    def _kill_all(self) -> None:
        while self._processes:
            self._processes.popitem()[1].kill()

    def _log_path(self, name: str) -> Path:
        return self._folder / f"{name}.log"


# A deployment with the orchestrators and workers of the command `runnel`.

WORKER_COMMAND: Sequence[str] = (
    *("runnel", "worker"),
    *("--app", "runnel.bench.workflows:handlers", "--app", "runnel.bench.functions"),
)
ORCHESTRATOR_COMMAND: Sequence[str] = ("runnel", "orchestrator")
POLL_INTERVAL_S = 0.02
START_TIMEOUT_S = 30.0
WARMUP_EXECUTIONS = 20


class DeploymentLayout(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of processes, the slots of each worker, and settings by variable name."""

    concurrency: int = 4
    workers: int = 1
    orchestrators: int = 1
    environ: Mapping[str, str] = {}


class ServerDeployment:
    """Orchestrators and workers with Redis or with Redis and PostgreSQL, and a client in this
    process.
    """

    def __init__(
        self, stores: StoreSession, fleet: ProcessFleet, servers: BenchmarkServers
    ) -> None:
        self.client: StoreClient = stores.client
        self.clock: Clock = stores.clock
        self.fleet = fleet
        self.servers = servers
        self._stores = stores

    def watch_completions(
        self, *, pause_s: float = 0.0
    ) -> AbstractAsyncContextManager[CompletionWaiter]:
        return FeedCompletionWaiter(self._stores, pause_s).follow_feed()

    def pids(self) -> Mapping[str, Sequence[int]]:
        """Returns the process ids by role.

        This process is left out, because the client of a user would be on another machine.
        """
        pids_by_role: dict[str, list[int]] = {}
        for name, pid in self.fleet.pids().items():
            pids_by_role.setdefault(name.partition("-")[0], []).append(pid)
        return pids_by_role

    async def wait_until_owned(self, pids: Collection[int]) -> None:
        """Waits until exactly these processes own all partitions."""
        end = self.clock.monotonic() + START_TIMEOUT_S
        while await self._read_owner_pids() != set(pids):
            for name, log in self.fleet.find_ended().items():
                raise ServerFailedError(name, "ended while it started", log=log)
            if self.clock.monotonic() > end:
                raise ServerFailedError(
                    "orchestrator", f"did not own its partitions within {START_TIMEOUT_S:g} s"
                )
            await self.clock.sleep(POLL_INTERVAL_S)

    async def _read_owner_pids(self) -> set[int | None]:
        """Returns the process ids of all owners, and None if a partition has no owner."""
        store = self._stores.backend.store
        leases = [await store.observe(number) for number in await store.partitions()]
        return {None if lease is None else int(lease.owner.split("-")[-2]) for lease in leases}


@asynccontextmanager
async def open_server_deployment(
    servers: BenchmarkServers, layout: DeploymentLayout
) -> AsyncIterator[ServerDeployment]:
    """Starts all processes and warms them up; at the end, removes all data from servers of the
    user.
    """
    environ = _build_settings_environment(servers, layout)
    settings = read_settings(clean_environment(environ))
    roles = {
        f"orchestrator-{number}": ORCHESTRATOR_COMMAND for number in range(layout.orchestrators)
    }
    roles |= {f"worker-{number}": WORKER_COMMAND for number in range(layout.workers)}
    async with open_store_session(settings) as stores:
        try:
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="runnel-bench-"))
                fleet = stack.enter_context(ProcessFleet(roles, environ, Path(folder)))
                deployment = ServerDeployment(stores, fleet, servers)
                await deployment.wait_until_owned(
                    [pid for name, pid in fleet.pids().items() if name.startswith("orch")]
                )
                async with fleet.watch(stores.clock):
                    await run_all(deployment, EngineOnlyWork(build_diamond()), WARMUP_EXECUTIONS)
                    yield deployment
        finally:
            if not servers.is_private:
                await stores.backend.close()  # also ends a cancelled submit that is still in flight
                await remove_traces(servers, stores.clock)


def _build_settings_environment(
    servers: BenchmarkServers, layout: DeploymentLayout
) -> dict[str, str]:
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


# Waits for the archive, so that its work does not slow down the next measurement.

ARCHIVE_POLL_INTERVAL_S = 0.05
ARCHIVE_TIMEOUT_S = 120.0


async def settle(*parts: BenchmarkServers) -> None:
    """Waits until the archive has all executions; all `parts` use the same PostgreSQL server."""
    postgres_url = parts[0].postgres_url
    if postgres_url is not None:
        await wait_until_archived(postgres_url, [part.name for part in parts], RealClock())


async def wait_until_archived(postgres_url: str, schemas: Collection[str], clock: Clock) -> None:
    """Waits until all executions in these schemas are final; raises StoreError after a timeout.

    The archive lags when the last execution ends. Of 2,000 diamonds, 600 to 2,000 were not archived
    at that time, and archiving them took 0.8 to 1.1 s.
    """
    final = [state.value for state in FINAL_EXECUTION_STATES]
    end = clock.monotonic() + ARCHIVE_TIMEOUT_S
    async with connect_postgres(postgres_url) as connection:
        for schema in schemas:
            table = f"{quote_identifier(schema)}.executions"
            query = f"SELECT count(*) FROM {table} WHERE state <> ALL ($1)"  # noqa: S608  # quoted
            while pending := await connection.fetchval(query, final):
                if clock.monotonic() > end:
                    problem = (
                        f"{pending} executions were not archived within {ARCHIVE_TIMEOUT_S:g} s"
                    )
                    raise StoreError(f"PostgreSQL: {problem}")
                await clock.sleep(ARCHIVE_POLL_INTERVAL_S)
