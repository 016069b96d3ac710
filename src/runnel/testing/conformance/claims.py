"""Rules for claims and reports of tasks.

A task can be claimed as soon as it is queued, and only once. Claims are fair over the queues. The
store checks a task before the task starts.
"""

import asyncio

import pytest

from runnel.core.commands import Command, TaskDeferred, TaskFailed, TaskStarted
from runnel.core.ids import TaskToken
from runnel.core.retry import ErrorInfo
from runnel.ports.store import Commit, Store, TaskQueue
from runnel.testing.clock import FakeClock, settle
from runnel.testing.conformance.suite import (
    ConformanceFixtures,
    LeaseOwner,
    make_completion,
    make_task,
    make_token,
    take_over,
)
from runnel.testing.harness import Harness


class ClaimRules(ConformanceFixtures):
    async def test_a_claimed_task_has_all_its_fields(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))

        assert list(await tasks.claim("w", None, limit=5, wait_s=0)) == [make_task("a")]

    async def test_a_task_is_claimed_by_one_worker_only(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(
            Commit(sequence=0, tasks=[make_task("a"), make_task("b"), make_task("c")])
        )

        claimed = [await claim_nodes(tasks, name, limit=2) for name in ("one", "two", "three")]

        assert claimed == [["a", "b"], ["c"], []]

    async def test_tasks_of_one_queue_are_claimed_in_order(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        names = [f"t{number}" for number in range(10)]
        await owner.commit(Commit(sequence=0, tasks=[make_task(name) for name in names]))

        assert await claim_nodes(tasks, "w", limit=10) == names

    async def test_a_claim_takes_tasks_only_from_the_given_queues(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        issued = [make_task("a", queue="one"), make_task("b", queue="two")]
        await owner.commit(Commit(sequence=0, tasks=issued))

        assert await claim_nodes(tasks, "w", "two") == ["b"]
        assert await claim_nodes(tasks, "w", "three") == []
        assert await claim_nodes(tasks, "w", "three", "one") == ["a"]

    async def test_a_long_queue_does_not_delay_other_queues(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        busy = [make_task(f"busy{number}", queue="busy") for number in range(50)]
        quiet = [make_task(f"quiet{number}", queue="quiet") for number in range(2)]
        await owner.commit(Commit(sequence=0, tasks=[*busy, *quiet]))

        claimed = [name for _ in range(4) for name in await claim_nodes(tasks, "w", limit=1)]

        assert sorted(claimed) == ["busy0", "busy1", "quiet0", "quiet1"]

    async def test_a_large_claim_takes_from_each_queue(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        busy = [make_task(f"busy{number}", queue="busy") for number in range(50)]
        await owner.commit(Commit(sequence=0, tasks=[*busy, make_task("quiet", queue="quiet")]))

        assert "quiet" in await claim_nodes(tasks, "w", "busy", "quiet", limit=4)

    async def test_a_waiting_worker_gets_a_new_task_at_once(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.claim("w", ["default"], limit=1, wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))

        assert list(waiting.result()) == [make_task("a")]

    async def test_every_waiting_worker_is_woken(self, tasks: TaskQueue, owner: LeaseOwner) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(tasks.claim(f"w{number}", None, limit=1, wait_s=60))
                for number in range(3)
            ]
            await settle()
            issued = [make_task(f"t{number}") for number in range(3)]
            await owner.commit(Commit(sequence=0, tasks=issued))

        claimed = [task.token.node_id for claim in waiting for task in claim.result()]
        assert sorted(claimed) == ["t0", "t1", "t2"]

    async def test_a_task_for_another_queue_does_not_end_the_wait(
        self, tasks: TaskQueue, clock: FakeClock, owner: LeaseOwner
    ) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.claim("w", ["one"], limit=1, wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, tasks=[make_task("a", queue="two")]))
            await clock.advance(59.0)
            was_done = waiting.done()
            await owner.commit(Commit(sequence=0, tasks=[make_task("b", queue="one")]))

        assert (was_done, list(waiting.result())) == (False, [make_task("b", queue="one")])

    async def test_a_claim_waits_for_its_full_time(
        self, tasks: TaskQueue, clock: FakeClock
    ) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.claim("w", None, limit=1, wait_s=5))
            await clock.advance(4.9)
            was_done_early = waiting.done()
            await clock.advance(0.2)

        assert (was_done_early, list(waiting.result())) == (False, [])

    async def test_a_claimed_task_may_start(self, tasks: TaskQueue, owner: LeaseOwner) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w", limit=2)

        assert await start_tasks(tasks, "w", make_token("a"), make_token("b")) == [True, True]

    async def test_a_task_that_was_not_claimed_does_not_start(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w", limit=1)

        assert await start_tasks(tasks, "w", make_token("b"), make_token("unknown")) == [
            False,
            False,
        ]
        assert await start_tasks(tasks, "other", make_token("a")) == [False]

    async def test_a_dropped_task_is_never_claimed(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(
            Commit(sequence=0, tasks=[make_task("a"), make_task("b"), make_task("c")])
        )

        await owner.commit(Commit(sequence=0, dropped=[make_token("a"), make_token("c")]))

        assert await claim_nodes(tasks, "w", limit=5) == ["b"]

    async def test_a_task_issued_and_dropped_by_one_commit_is_never_claimed(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(
            Commit(sequence=0, tasks=[make_task("a"), make_task("b")], dropped=[make_token("a")])
        )

        assert await claim_nodes(tasks, "w", limit=5) == ["b"]

    async def test_a_task_dropped_after_it_was_claimed_does_not_start(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w", limit=2)

        await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))

        assert await start_tasks(tasks, "w", make_token("a"), make_token("b")) == [False, True]

    async def test_dropping_an_old_attempt_leaves_the_new_one(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a", attempt=1)]))

        await owner.commit(
            Commit(
                sequence=0, tasks=[make_task("a", attempt=2)], dropped=[make_token("a", attempt=1)]
            )
        )

        claimed = await tasks.claim("w", None, limit=5, wait_s=0)
        assert [task.token.attempt for task in claimed] == [2]

    async def test_a_task_that_is_queued_or_claimed_is_known(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w", limit=1)
        tokens = [make_token("a"), make_token("b"), make_token("c"), make_token("a", attempt=2)]

        unknown = await store.unknown_tasks(owner.partition, tokens)

        assert list(unknown) == tokens[2:]

    async def test_after_a_takeover_a_task_can_still_run_or_is_unknown(
        self, harness: Harness, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w", limit=1)

        current = await take_over(harness, owner)

        tokens = [make_token("a"), make_token("b")]
        unknown = await current.store.unknown_tasks(current.partition, tokens)
        assert await start_tasks(tasks, "w", make_token("a")) == [make_token("a") not in unknown]
        assert ("b" in await claim_nodes(tasks, "w", limit=5)) == (make_token("b") not in unknown)


async def claim_nodes(tasks: TaskQueue, worker: str, *queues: str, limit: int = 9) -> list[str]:
    claimed = await tasks.claim(worker, queues or None, limit=limit, wait_s=0)
    return [task.token.node_id for task in claimed]


async def start_tasks(tasks: TaskQueue, worker: str, *tokens: TaskToken) -> list[bool]:
    return list(await tasks.start(worker, tokens, now=1.0))


# -- a report ends its claim and reaches the owner in one step, or is refused -------------------

STARTED_REPORT = TaskStarted(token=make_token("a"), worker="w", started_at=1.0)
FINAL_REPORTS: dict[str, Command] = {
    "completed": make_completion("a"),
    "failed": TaskFailed(token=make_token("a"), error=ErrorInfo("ValueError", "no")),
    "deferred": TaskDeferred(token=make_token("a"), until=9.0),
}


class ReportRules(ConformanceFixtures):
    @pytest.mark.parametrize("end", FINAL_REPORTS)
    async def test_a_report_arrives_once_and_ends_the_claim(
        self, tasks: TaskQueue, owner: LeaseOwner, end: str
    ) -> None:
        await issue_and_claim(tasks, owner)

        answers = [await tasks.report("w", [FINAL_REPORTS[end]]) for _ in range(2)]

        assert [list(answer) for answer in answers] == [[True], [False]]
        assert await owner.read_commands() == [FINAL_REPORTS[end]]

    async def test_a_report_with_an_old_token_is_refused(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(
            Commit(sequence=0, dropped=[make_token("a")], tasks=[make_task("a", attempt=2)])
        )
        await claim_nodes(tasks, "w")

        answers = await tasks.report(
            "w", [make_completion("a", attempt=1), make_completion("a", attempt=2)]
        )

        assert list(answers) == [False, True]
        assert await owner.read_commands() == [make_completion("a", attempt=2)]

    async def test_a_report_of_another_worker_is_refused(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        assert list(await tasks.report("other", [make_completion("a")])) == [False]
        assert await owner.read_commands() == []

    async def test_a_report_of_a_task_that_was_never_claimed_is_refused(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))

        assert list(await tasks.report("w", [make_completion("a")])) == [False]
        assert await claim_nodes(tasks, "w") == ["a"]

    async def test_each_report_of_a_batch_is_accepted_or_refused_separately(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w")

        answers = await tasks.report(
            "w",
            [
                make_completion("a"),
                make_completion("x"),
                make_completion("b"),
                make_completion("a"),
            ],
        )

        assert list(answers) == [True, False, True, False]
        assert await owner.read_commands() == [make_completion("a"), make_completion("b")]

    async def test_a_start_report_does_not_end_the_claim(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        answers = [
            *await tasks.report("w", [STARTED_REPORT]),
            *await tasks.report("w", [make_completion("a")]),
        ]

        assert answers == [True, True]
        assert await owner.read_commands() == [STARTED_REPORT, make_completion("a")]

    async def test_a_start_report_of_a_dropped_task_is_refused(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))

        assert list(await tasks.report("w", [STARTED_REPORT])) == [False]
        assert await owner.read_commands() == []

    async def test_a_report_wakes_a_waiting_owner(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(owner.read(wait_s=60))
            await settle()
            await tasks.report("w", [make_completion("a")])

        assert [entry.command for entry in reading.result()] == [make_completion("a")]

    async def test_a_task_with_an_unread_report_is_known_until_it_is_consumed(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await tasks.report("w", [make_completion("a")])
        before = await store.unknown_tasks(owner.partition, [make_token("a")])
        (entry,) = await owner.read()

        await owner.consume(entry.position)

        after = await store.unknown_tasks(owner.partition, [make_token("a")])
        assert (list(before), list(after)) == ([], [make_token("a")])

    async def test_the_worker_of_a_dropped_task_is_notified_at_once(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await start_tasks(tasks, "w", make_token("a"))

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.wait_dropped("w", wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))

        assert list(waiting.result()) == [make_token("a")]

    async def test_a_worker_that_polls_later_still_learns_of_a_drop(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))

        assert list(await tasks.wait_dropped("w", wait_s=0)) == [make_token("a")]

    async def test_other_workers_are_not_notified_of_a_drop(
        self, tasks: TaskQueue, clock: FakeClock, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.wait_dropped("other", wait_s=5))
            await settle()
            await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))
            await clock.advance(6.0)

        assert list(waiting.result()) == []


async def issue_and_claim(tasks: TaskQueue, owner: LeaseOwner) -> None:
    await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))
    await claim_nodes(tasks, "w")
