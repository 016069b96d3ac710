"""Rules for stopped tasks: no stopped task starts, and the end of each is reported once."""

import asyncio

import pytest

from runnel.core.commands import TaskLost, TaskStopped
from runnel.errors import FencedError
from runnel.ports.store import Commit, Store, TaskQueue
from runnel.testing.clock import settle
from runnel.testing.conformance.claims import claim_nodes, issue_and_claim, start_tasks
from runnel.testing.conformance.suite import (
    ConformanceFixtures,
    LeaseOwner,
    make_completion,
    make_task,
    make_token,
)

STOPPED = TaskStopped(token=make_token("a"))


async def stop_claimed(tasks: TaskQueue, owner: LeaseOwner) -> None:
    """Issues the task `a`, which the worker `w` claims, and stops that task."""
    await issue_and_claim(tasks, owner)
    await owner.commit(Commit(sequence=0, stopped=[make_token("a")]))


class StopRules(ConformanceFixtures):
    async def test_a_queued_task_that_is_stopped_is_never_claimed_and_has_ended(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))

        await owner.commit(Commit(sequence=0, stopped=[make_token("a")]))

        assert await claim_nodes(tasks, "w", limit=5) == ["b"]
        assert await owner.read_commands() == [STOPPED]

    async def test_a_refused_commit_stops_nothing(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w", limit=1)
        stops = Commit(sequence=owner.sequence + 2, stopped=[make_token("a"), make_token("b")])

        with pytest.raises(FencedError):
            await store.commit(owner.lease, stops)

        assert await start_tasks(tasks, "w", make_token("a")) == [True]
        assert await claim_nodes(tasks, "w", limit=1) == ["b"]
        assert await owner.read_commands() == []

    async def test_a_stopped_task_that_has_not_started_does_not_start(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)

        assert await start_tasks(tasks, "w", make_token("a")) == [False]

    async def test_the_worker_of_a_stopped_task_is_notified_at_once(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await start_tasks(tasks, "w", make_token("a"))

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.wait_dropped("w", wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, stopped=[make_token("a")]))

        assert list(waiting.result()) == [make_token("a")]

    async def test_each_heartbeat_reply_names_the_stopped_tasks_that_a_worker_holds(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)

        replies = [await tasks.beat("w", [make_token("a")]) for _ in range(3)]

        assert [list(reply.stop) for reply in replies] == [[make_token("a")]] * 3
        assert await owner.read_commands() == []

    async def test_the_worker_reports_the_end_of_a_stopped_task_once(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)
        known = await store.unknown_tasks(owner.partition, [make_token("a")])

        answers = [*await tasks.report("w", [STOPPED]), *await tasks.report("w", [STOPPED])]

        assert answers == [True, False]
        assert await owner.read_commands() == [STOPPED]
        assert list(known) == []
        assert list((await tasks.beat("w", [])).stop) == []

    async def test_a_report_that_overtakes_the_stop_is_accepted(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)

        assert list(await tasks.report("w", [make_completion("a")])) == [True]
        assert await owner.read_commands() == [make_completion("a")]

    async def test_the_end_of_a_dropped_task_is_not_reported(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))

        assert list(await tasks.report("w", [STOPPED])) == [False]
        assert await owner.read_commands() == []

    async def test_a_stopped_task_of_a_worker_that_leaves_is_lost(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)

        await tasks.leave("w")

        (lost,) = await owner.read_commands()
        assert isinstance(lost, TaskLost)
        assert lost.token == make_token("a")

    async def test_a_stopped_task_of_a_dead_worker_is_lost(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)
        (record,) = await tasks.workers()

        assert await store.lose_worker_tasks(record) == 1

        (lost,) = await owner.read_commands()
        assert isinstance(lost, TaskLost)

    @pytest.mark.parametrize("order", ["stop first", "isolate first"])
    async def test_a_stopped_task_in_a_child_process_did_not_crash_its_worker(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner, order: str
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await tasks.claim("w", None, limit=5, wait_s=0, starts_tasks=True)
        stop = Commit(sequence=0, stopped=[make_token("a"), make_token("b")])
        if order == "stop first":
            await owner.commit(stop)
        await tasks.isolate("w", make_token("a"))
        if order == "isolate first":
            await owner.commit(stop)

        replied = set((await tasks.beat("w", [make_token("a"), make_token("b")])).stop)
        (record,) = await tasks.workers()
        await store.lose_worker_tasks(record)

        assert replied == {make_token("a"), make_token("b")}
        lost = [entry for entry in await owner.read_commands() if isinstance(entry, TaskLost)]
        assert {entry.token.node_id: (entry.was_started, entry.was_alone) for entry in lost} == {
            "a": (False, False),
            "b": (True, True),
        }

    async def test_a_stopped_task_that_two_heartbeats_do_not_list_is_lost(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await stop_claimed(tasks, owner)

        await tasks.beat("w", [])
        await tasks.beat("w", [])

        (lost,) = await owner.read_commands()
        assert isinstance(lost, TaskLost)

    async def test_a_task_that_the_store_does_not_know_can_be_stopped(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, stopped=[make_token("a")]))

        assert await owner.read_commands() == []
