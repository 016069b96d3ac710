"""A follower learns how an execution ended, even if its own process missed the end."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runnel import WorkflowDAG, WorkflowExecutor
from runnel.app.embedded_engine import ClockAndIds, EmbeddedEngine, run_engine
from runnel.app.wiring import build_engine
from runnel.backends.memory import MemoryBackend
from runnel.backends.sqlite.store import SqliteStore
from runnel.cli.main import run_command
from runnel.cli.render.progress import ExecutionProgress
from runnel.cli.session import run_locally as local_runs
from runnel.cli.session.run_locally import LocalSession
from runnel.core.commands import CancelExecution, StartExecution
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState, NodeState
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import LeaseHeldError, StoreError
from runnel.ports.store import Commit, CommitLimits, Lease, LeaseRecord
from runnel.settings.model import Settings
from runnel.testing.clock import settle
from tests.core_driver import make_node, make_workflow
from tests.engines import WorkHandler, build_registry, open_engine
from tests.waiting import wait_until

DEADLINE_S = 30.0
HELD = make_workflow(make_node("held"))
NAP = make_workflow(make_node("nap", handler="sleep", config={"seconds": 99}))


class PartitionLoss:
    """After `arm`, the next commit fails and its owner never gets the partition back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released = asyncio.Event()
        self._lost: tuple[str, int] | None = None
        self._is_armed = False
        for name in ("commit", "acquire", "release"):
            monkeypatch.setattr(SqliteStore, name, getattr(self, f"_{name}")(_real(name)))

    def arm(self) -> None:
        self._is_armed = True

    def _commit(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def commit(store: SqliteStore, lease: Lease, commit: Commit) -> None:
            if self._is_armed:
                self._is_armed, self._lost = False, (lease.owner, lease.partition)
                raise StoreError("the disk is full")
            await real(store, lease, commit)

        return commit

    def _acquire(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def acquire(
            store: SqliteStore, partition: int, owner: str, *, expected: LeaseRecord | None = None
        ) -> Any:
            if self._lost == (owner, partition):
                raise LeaseHeldError(partition, "another owner")
            return await real(store, partition, owner, expected=expected)

        return acquire

    def _release(self, real: Callable[..., Any]) -> Callable[..., Any]:
        async def release(store: SqliteStore, lease: Lease) -> None:
            await real(store, lease)
            if self._lost == (lease.owner, lease.partition):
                self.released.set()

        return release


def _real(name: str) -> Callable[..., Any]:
    method: Callable[..., Any] = getattr(SqliteStore, name)
    return method


class SilentView:
    """A view that shows nothing."""

    def add(self, progress: ExecutionProgress) -> None: ...

    def show_changes(self, progress: ExecutionProgress) -> None:
        progress.changed.clear()

    def refresh(self) -> None: ...

    def print_message(self, text: str) -> None: ...

    def close(self) -> None: ...


async def run_session(session: LocalSession, *, adopts: bool = False) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await session.run(adopts=adopts)


async def cancel_as_another_process(data_dir: Path) -> None:
    command = ["cancel", "@last", "--data-dir", str(data_dir)]
    assert await asyncio.to_thread(run_command, command) == 0


@pytest.fixture(autouse=True)
def no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the CLI from sending logs to stderr, which would last for the whole process."""
    monkeypatch.setattr(local_runs, "show_logs", lambda _hide: None)


@pytest.fixture
def loss(monkeypatch: pytest.MonkeyPatch) -> PartitionLoss:
    return PartitionLoss(monkeypatch)


async def test_a_resume_ends_when_another_process_ended_the_execution(
    tmp_path: Path, loss: PartitionLoss
) -> None:
    work = WorkHandler()
    may_end = work.gate("held")
    async with open_engine("sqlite", tmp_path, work) as former:
        execution_id = await former.client.submit(HELD)
        await work.entered["held"].wait()
    work.entered["held"].clear()

    engine = await build_engine(
        Settings(data_dir=tmp_path, shutdown_timeout_s=0.1), handlers=build_registry(work)
    )
    try:
        progress = ExecutionProgress.from_execution(await engine.client.load(execution_id))
        session = LocalSession(engine, SilentView(), stop_message="stopping")
        session.follow(progress)
        async with asyncio.TaskGroup() as group:
            group.create_task(run_session(session, adopts=True))
            await work.entered["held"].wait()
            loss.arm()
            may_end.set()
            await loss.released.wait()
            await cancel_as_another_process(tmp_path)
    finally:
        await engine.backend.close()

    assert progress.state is ExecutionState.CANCELLED
    assert progress.lines["held"].state == "CANCELLED"


def ends_execution(commit: Commit) -> bool:
    return any(header.state in FINAL_EXECUTION_STATES for header in commit.headers)


async def test_execute_returns_the_outputs_of_a_commit_whose_answer_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = _real("commit")

    async def commit(store: SqliteStore, lease: Lease, commit: Commit) -> None:
        await real(store, lease, commit)
        if ends_execution(commit):
            raise StoreError("no answer")

    monkeypatch.setattr(SqliteStore, "commit", commit)
    dag = WorkflowDAG().add_step("a", lambda _ctx: 1)
    async with asyncio.timeout(DEADLINE_S):
        result = await WorkflowExecutor(data_dir=tmp_path).execute(dag)

    assert (result.status, result.outputs) == (ExecutionState.COMPLETED, {"a": 1})


async def test_a_run_ends_after_a_partly_stored_last_batch() -> None:
    world = ClockAndIds(RealClock(), RandomIdGenerator())
    backend = MemoryBackend(world.clock, world.ids, limits=CommitLimits(writes=8))
    settings = Settings(shutdown_timeout_s=0.1, lease_s=3_600)
    engine = EmbeddedEngine(backend, build_registry(WorkHandler()), world, settings)
    real = backend.store.commit

    async def commit(lease: Lease, commit: Commit) -> None:
        if commit.tasks and not commit.headers:
            raise StoreError("the disk is full")
        await real(lease, commit)

    backend.store.commit = commit  # type: ignore[method-assign]  # a fault
    await engine.claim_home_partition()
    progress = ExecutionProgress(await engine.client.submit(NAP), NAP)
    session = LocalSession(engine, SilentView(), stop_message="stopping")
    session.follow(progress)
    large = make_workflow(*(make_node(f"n{number}") for number in range(20)))
    other = await engine.client.hold(large)
    async with asyncio.TaskGroup() as group:
        group.create_task(run_session(session))
        await wait_until(lambda: progress.counts[NodeState.WAITING] == 1)
        await backend.mailbox.send(
            [
                CancelExecution(execution_id=ExecutionId(progress.execution_id)),
                StartExecution(execution_id=other),
            ]
        )

    assert progress.state is ExecutionState.CANCELLED


async def test_a_waiter_reads_again_when_a_partition_can_not_be_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(_store: SqliteStore, _lease: Lease) -> None:
        raise StoreError("the disk is full")

    work = WorkHandler()
    work.gate("held")
    engine = await build_engine(
        Settings(data_dir=tmp_path, shutdown_timeout_s=0.1), handlers=build_registry(work)
    )
    monkeypatch.setattr(SqliteStore, "release", refused)
    async with asyncio.TaskGroup() as group, run_engine(engine):
        execution_id = await engine.client.submit(HELD)
        await work.entered["held"].wait()
        waiting = group.create_task(_wait_until_closed(engine, execution_id))
        await settle()

    assert "closed" in waiting.result()


async def _wait_until_closed(engine: EmbeddedEngine, execution_id: ExecutionId) -> str:
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(StoreError) as caught:
            await engine.client.wait_for_end(execution_id)
    return str(caught.value)
