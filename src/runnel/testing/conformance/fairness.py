"""Rules for the order of claims within a queue.

The highest priority comes first, workflows take turns, and the oldest execution comes first.
"""

import asyncio

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.ids import ExecutionId
from runnel.ports.store import Commit, TaskQueue
from runnel.testing.clock import settle
from runnel.testing.conformance.suite import (
    ConformanceFixtures,
    LeaseOwner,
    make_task,
    make_token,
)


def make_placed_task(
    node: str,
    *,
    workflow: str = "w",
    place: float = 1.0,
    execution: str = "x1",
    attempt: int = 1,
    priority: int = 0,
    queue: str = "default",
) -> TaskMessage:
    token = make_token(node, attempt=attempt, execution_id=ExecutionId(execution))
    return msgspec.structs.replace(
        make_task(node, queue=queue),
        token=token,
        workflow=workflow,
        place=place,
        priority=priority,
    )


async def claim_one_by_one(tasks: TaskQueue, count: int) -> list[str]:
    claimed = [await tasks.claim("w", ["default"], limit=1, wait_s=0) for _ in range(count)]
    return [task.token.node_id for claim in claimed for task in claim]


class FairnessRules(ConformanceFixtures):
    async def test_workflows_of_a_queue_take_turns(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        large = [make_placed_task(f"large{n}", workflow="large") for n in range(50)]
        small = [make_placed_task(f"small{n}", workflow="small", place=9.0) for n in range(2)]
        await owner.commit(Commit(sequence=0, tasks=large))
        await owner.commit(Commit(sequence=0, tasks=small))

        claimed = await claim_one_by_one(tasks, 5)

        assert claimed == ["large0", "small0", "large1", "small1", "large2"]

    async def test_a_large_claim_takes_from_each_workflow(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        large = [make_placed_task(f"large{n}", workflow="large") for n in range(50)]
        small = [make_placed_task("small", workflow="small", place=9.0)]
        await owner.commit(Commit(sequence=0, tasks=[*large, *small]))

        claimed = await tasks.claim("w", ["default"], limit=4, wait_s=0)

        names = sorted(task.token.node_id for task in claimed)
        assert names == ["large0", "large1", "large2", "small"]

    async def test_the_next_task_of_an_older_execution_comes_before_younger_executions(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        first = [make_placed_task(f"first{n}", place=float(n), execution=f"x{n}") for n in range(3)]
        await owner.commit(Commit(sequence=0, tasks=first))
        claimed = await claim_one_by_one(tasks, 1)
        await owner.commit(Commit(sequence=0, tasks=[make_placed_task("next0", place=0.0)]))

        assert [*claimed, *await claim_one_by_one(tasks, 3)] == [
            "first0",
            "next0",
            "first1",
            "first2",
        ]

    async def test_executions_with_the_same_place_do_not_mix(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        first = [make_placed_task(f"first{n}", execution=f"x{n}") for n in range(3)]
        await owner.commit(Commit(sequence=0, tasks=first))
        await owner.commit(Commit(sequence=0, tasks=[make_placed_task("next0", execution="x0")]))

        assert await claim_one_by_one(tasks, 4) == ["first0", "next0", "first1", "first2"]

    async def test_a_task_that_is_issued_again_comes_first_in_its_execution(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        waiting = [make_placed_task(f"t{n}") for n in range(12)]
        await owner.commit(Commit(sequence=0, tasks=waiting))
        again = make_placed_task("again", attempt=2)
        await owner.commit(Commit(sequence=0, tasks=[again]))

        names = await claim_one_by_one(tasks, 13)

        assert names == ["again", *(f"t{n}" for n in range(12))]

    async def test_dropped_tasks_do_not_change_the_turns(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        gone = [make_placed_task(f"gone{n}", workflow="gone") for n in range(5)]
        kept = [make_placed_task(f"kept{n}", workflow="kept") for n in range(2)]
        await owner.commit(Commit(sequence=0, tasks=[*gone, *kept]))
        await owner.commit(Commit(sequence=0, dropped=[task.token for task in gone[:4]]))

        assert sorted(await claim_one_by_one(tasks, 4)) == ["gone4", "kept0", "kept1"]

    async def test_a_waiting_worker_gets_tasks_of_each_workflow_oldest_first(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        young = [make_placed_task(f"young{n}", place=5.0, execution="x5") for n in range(5)]
        issued = [*young, make_placed_task("old"), make_placed_task("other", workflow="other")]
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.claim("w", ["default"], limit=2, wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, tasks=issued))

        assert sorted(task.token.node_id for task in waiting.result()) == ["old", "other"]

    async def test_a_higher_priority_comes_before_older_executions_and_other_workflows(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        low = [make_placed_task(f"low{n}", workflow="low", priority=-1) for n in range(2)]
        usual = [make_placed_task(f"usual{n}") for n in range(2)]
        urgent = [make_placed_task(f"urgent{n}", place=9.0, priority=10) for n in range(2)]
        for batch in (low, usual, urgent):
            await owner.commit(Commit(sequence=0, tasks=batch))

        names = [*urgent, *usual, *low]
        assert await claim_one_by_one(tasks, 6) == [task.token.node_id for task in names]

    async def test_workflows_of_the_same_priority_take_turns(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        for workflow in ("a", "b"):
            issued = [
                make_placed_task(f"{workflow}{n}", workflow=workflow, priority=5) for n in range(2)
            ]
            await owner.commit(Commit(sequence=0, tasks=issued))
        await owner.commit(Commit(sequence=0, tasks=[make_placed_task("c0", workflow="c")]))

        assert await claim_one_by_one(tasks, 5) == ["a0", "b0", "a1", "b1", "c0"]

    async def test_a_large_claim_takes_the_highest_priority_first(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        usual = [make_placed_task(f"usual{n}", workflow=f"w{n}") for n in range(5)]
        urgent = [make_placed_task(f"urgent{n}", priority=100) for n in range(3)]
        await owner.commit(Commit(sequence=0, tasks=[*usual, *urgent]))

        claimed = await tasks.claim("w", ["default"], limit=4, wait_s=0)

        names = sorted(task.token.node_id for task in claimed)
        assert names[:3] == ["urgent0", "urgent1", "urgent2"]
        assert len(names) == 4

    async def test_a_waiting_worker_gets_the_highest_priority_first(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        usual = [make_placed_task(f"usual{n}", workflow=f"w{n}") for n in range(3)]
        urgent = [make_placed_task(f"urgent{n}", place=9.0, priority=1) for n in range(2)]
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(tasks.claim("w", ["default"], limit=2, wait_s=60))
            await settle()
            await owner.commit(Commit(sequence=0, tasks=[*usual, *urgent]))

        assert [task.token.node_id for task in waiting.result()] == ["urgent0", "urgent1"]
        assert await claim_one_by_one(tasks, 3) == ["usual0", "usual1", "usual2"]

    async def test_all_tasks_of_many_workflows_and_queues_are_claimed_once(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        issued = [
            make_placed_task(f"t{n}", workflow=f"w{n % 7}", priority=n % 3, queue=f"q{n % 2}")
            for n in range(60)
        ]
        await owner.commit(Commit(sequence=0, tasks=issued))
        await owner.commit(Commit(sequence=0, dropped=[task.token for task in issued[::5]]))

        claimed = [
            task.token.node_id
            for limit in (1, 2, 3, 5, 8, 13, 21, 34)
            for task in await tasks.claim("w", None, limit=limit, wait_s=0)
        ]

        assert sorted(claimed) == sorted(f"t{n}" for n in range(60) if n % 5)
