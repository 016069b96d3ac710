"""A report ends its claim and reaches the owner as one step, or is refused."""

import asyncio

import pytest

from runnel.core.commands import Command, TaskDeferred, TaskFailed, TaskStarted
from runnel.core.retry import ErrorInfo
from runnel.ports.store import Commit, Store, TaskQueue
from runnel.testing.clock import FakeClock, settle
from runnel.testing.conformance.claims import claim, start
from runnel.testing.conformance.suite import Owner, Suite
from runnel.testing.conformance.values import done, task, token

STARTED = TaskStarted(token=token("a"), worker="w", started_at=1.0)
ENDS: dict[str, Command] = {
    "completed": done("a"),
    "failed": TaskFailed(token=token("a"), error=ErrorInfo("ValueError", "no")),
    "deferred": TaskDeferred(token=token("a"), until=9.0),
}


class ReportRules(Suite):
    @pytest.mark.parametrize("end", ENDS)
    async def test_a_report_arrives_once_and_ends_the_claim(
        self, tasks: TaskQueue, owner: Owner, end: str
    ) -> None:
        await issue_and_claim(tasks, owner)

        answers = [await tasks.report("w", [ENDS[end]]) for _ in range(2)]

        assert [list(answer) for answer in answers] == [[True], [False]]
        assert await owner.commands() == [ENDS[end]]

    async def test_a_report_with_an_old_token_is_refused(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(Commit(sequence=0, dropped=[token("a")], tasks=[task("a", attempt=2)]))
        await claim(tasks, "w")

        answers = await tasks.report("w", [done("a", attempt=1), done("a", attempt=2)])

        assert list(answers) == [False, True]
        assert await owner.commands() == [done("a", attempt=2)]

    async def test_a_report_of_another_worker_is_refused(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        assert list(await tasks.report("other", [done("a")])) == [False]
        assert await owner.commands() == []

    async def test_a_report_of_a_task_that_was_never_claimed_is_refused(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a")]))

        assert list(await tasks.report("w", [done("a")])) == [False]
        assert await claim(tasks, "w") == ["a"]

    async def test_each_report_of_a_batch_is_judged_by_itself(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await claim(tasks, "w")

        answers = await tasks.report("w", [done("a"), done("x"), done("b"), done("a")])

        assert list(answers) == [True, False, True, False]
        assert await owner.commands() == [done("a"), done("b")]

    async def test_a_note_that_a_task_started_does_not_end_its_claim(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        answers = [*await tasks.report("w", [STARTED]), *await tasks.report("w", [done("a")])]

        assert answers == [True, True]
        assert await owner.commands() == [STARTED, done("a")]

    async def test_a_note_of_a_dropped_task_is_refused(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(Commit(sequence=0, dropped=[token("a")]))

        assert list(await tasks.report("w", [STARTED])) == [False]
        assert await owner.commands() == []

    async def test_a_report_wakes_an_owner_that_waits(self, tasks: TaskQueue, owner: Owner) -> None:
        await issue_and_claim(tasks, owner)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(owner.read(wait_s=60))
            await settle()
            await tasks.report("w", [done("a")])

        assert [entry.command for entry in reading.result()] == [done("a")]

    async def test_a_task_with_an_unread_report_is_known_until_it_is_consumed(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await tasks.report("w", [done("a")])
        before = await store.unknown_tasks(owner.partition, [token("a")])
        (entry,) = await owner.read()

        await owner.consume(entry.position)

        after = await store.unknown_tasks(owner.partition, [token("a")])
        assert (list(before), list(after)) == ([], [token("a")])

    async def test_the_worker_of_a_dropped_task_is_told_at_once(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await start(tasks, "w", token("a"))

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.wait_dropped("w", wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, dropped=[token("a")]))

        assert list(waiting.result()) == [token("a")]

    async def test_a_drop_is_told_to_a_worker_that_asks_later(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(Commit(sequence=0, dropped=[token("a")]))

        assert list(await tasks.wait_dropped("w", wait_s=0)) == [token("a")]

    async def test_nobody_else_is_told_of_a_drop(
        self, tasks: TaskQueue, clock: FakeClock, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.wait_dropped("other", wait_s=5))
            await settle()
            await owner.commit(Commit(sequence=0, dropped=[token("a")]))
            await clock.advance(6.0)

        assert list(waiting.result()) == []


async def issue_and_claim(tasks: TaskQueue, owner: Owner) -> None:
    await owner.commit(Commit(sequence=0, tasks=[task("a")]))
    await claim(tasks, "w")
