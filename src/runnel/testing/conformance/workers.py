"""Rules for lost tasks, and for the lists of workers and queues.

A task is lost if its worker is dead, or if heartbeats of the worker do not list it. A lost task is
reported once to the owner of its partition.
"""

from runnel.core.commands import Command, TaskFailed, TaskLost
from runnel.core.retry import ErrorInfo
from runnel.ports.store import Commit, Store, TaskQueue
from runnel.ports.workers import (
    HeartbeatReply,
    RunningTaskInfo,
    WorkerInfo,
    WorkerRecord,
    WorkerState,
)
from runnel.testing.conformance.claims import claim_nodes, issue_and_claim, start_tasks
from runnel.testing.conformance.suite import (
    READ_LIMIT,
    ConformanceFixtures,
    LeaseOwner,
    make_completion,
    make_task,
    make_token,
)


class LostTaskRules(ConformanceFixtures):
    async def test_the_tasks_of_a_leaving_worker_are_lost_at_once(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(
            Commit(sequence=0, tasks=[make_task("a"), make_task("b"), make_task("c")])
        )
        await claim_nodes(tasks, "w", limit=2)

        await tasks.leave("w")

        assert list_lost_nodes(await owner.read_commands()) == ["a", "b"]
        assert await claim_nodes(tasks, "other") == ["c"]

    async def test_the_tasks_of_a_leaving_worker_do_not_count_as_started(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w")
        await start_tasks(tasks, "w", make_token("a"))

        await tasks.leave("w")

        assert get_started_flags(await owner.read_commands()) == {"a": False, "b": False}

    async def test_the_tasks_of_a_dead_worker_are_lost(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(
            Commit(sequence=0, tasks=[make_task("a"), make_task("b"), make_task("c")])
        )
        await claim_nodes(tasks, "dead", limit=2)
        await claim_nodes(tasks, "alive")

        assert await lose_tasks(store, tasks, "dead") == 2

        assert list_lost_nodes(await owner.read_commands()) == ["a", "b"]
        assert list(await tasks.report("alive", [make_completion("c")])) == [True]

    async def test_a_task_is_lost_once(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        counts = [await lose_tasks(store, tasks, "w") for _ in range(2)]

        assert counts == [1, 0]
        assert list_lost_nodes(await owner.read_commands()) == ["a"]

    async def test_an_unknown_worker_loses_no_tasks(self, store: Store) -> None:
        unknown = WorkerRecord(worker="unknown", counter=1, holds=0)

        assert await store.lose_worker_tasks(unknown) == 0

    async def test_a_worker_with_a_newer_heartbeat_loses_no_tasks(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        judged = await find_record(tasks, "w")
        assert judged is not None
        await tasks.beat("w", [make_token("a")])

        assert await store.lose_worker_tasks(judged) == 0
        assert list(await tasks.report("w", [make_completion("a")])) == [True]

    async def test_a_report_after_the_task_was_lost_is_refused(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await lose_tasks(store, tasks, "w")

        assert list(await tasks.report("w", [make_completion("a")])) == [False]
        assert list_lost_nodes(await owner.read_commands()) == ["a"]

    async def test_a_lost_task_shows_whether_it_had_started(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w")
        await start_tasks(tasks, "w", make_token("a"))

        await lose_tasks(store, tasks, "w")

        assert get_started_flags(await owner.read_commands()) == {"a": True, "b": False}

    async def test_only_a_task_without_other_started_tasks_was_alone(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task(name) for name in "abcd"]))
        await claim_nodes(tasks, "one", limit=2)
        await claim_nodes(tasks, "two", limit=2)
        await start_tasks(tasks, "one", make_token("a"))
        await start_tasks(tasks, "two", make_token("c"), make_token("d"))

        await lose_tasks(store, tasks, "one")
        await lose_tasks(store, tasks, "two")

        lost = [entry for entry in await owner.read_commands() if isinstance(entry, TaskLost)]
        assert {entry.token.node_id: entry.was_alone for entry in lost} == {
            "a": True,
            "b": False,
            "c": False,
            "d": False,
        }

    async def test_a_task_in_a_child_process_neither_crashed_its_worker_nor_was_company(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await tasks.claim("w", None, limit=5, wait_s=0, starts_tasks=True)

        await tasks.isolate("w", make_token("a"))
        await tasks.isolate("w", make_token("unknown"))
        await lose_tasks(store, tasks, "w")

        lost = [entry for entry in await owner.read_commands() if isinstance(entry, TaskLost)]
        assert {entry.token.node_id: (entry.was_started, entry.was_alone) for entry in lost} == {
            "a": (False, False),
            "b": (True, True),
        }

    async def test_the_tasks_of_a_worker_that_dies_while_draining_do_not_count_as_started(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))
        await tasks.claim("w", None, limit=5, wait_s=0, starts_tasks=True)
        await tasks.beat("w", [make_token("a")], about=WorkerInfo(is_draining=True))

        await lose_tasks(store, tasks, "w")

        assert get_started_flags(await owner.read_commands()) == {"a": False}

    async def test_tasks_started_by_their_claim_count_as_started(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await tasks.claim("w", None, limit=5, wait_s=0, starts_tasks=True)

        await lose_tasks(store, tasks, "w")

        assert get_started_flags(await owner.read_commands()) == {"a": True, "b": True}

    async def test_a_task_missing_from_heartbeats_does_not_count_as_started(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w")
        await start_tasks(tasks, "w", make_token("a"))

        for _ in range(2):
            await tasks.beat("w", [])

        assert get_started_flags(await owner.read_commands()) == {"a": False, "b": False}

    async def test_a_lost_task_is_known_until_its_loss_is_consumed(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        await lose_tasks(store, tasks, "w")

        assert list(await store.unknown_tasks(owner.partition, [make_token("a")])) == []

    async def test_a_task_missing_from_two_heartbeats_is_lost(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w")

        await tasks.beat("w", [make_token("b")])
        after_one = list_lost_nodes(await owner.read_commands())
        await tasks.beat("w", [make_token("b")])

        assert (after_one, list_lost_nodes(await owner.read_commands())) == ([], ["a"])
        assert list(await tasks.report("w", [make_completion("b")])) == [True]

    async def test_a_task_missing_from_one_heartbeat_and_listed_in_the_next_is_kept(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        for holds in ([], [make_token("a")], [], [make_token("a")]):
            await tasks.beat("w", holds)

        assert await owner.read_commands() == []
        assert list(await tasks.report("w", [make_completion("a")])) == [True]

    async def test_a_task_listed_in_every_heartbeat_is_kept(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        for _ in range(50):
            await tasks.beat("w", [make_token("a")])

        assert await owner.read_commands() == []

    async def test_the_reply_to_a_heartbeat_names_tasks_to_stop(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await claim_nodes(tasks, "w")
        await owner.commit(Commit(sequence=0, dropped=[make_token("a")]))

        orders = await tasks.beat("w", [make_token("a"), make_token("b"), make_token("c")])

        assert list(orders.stop) == [make_token("a"), make_token("c")]

    async def test_the_heartbeats_of_a_worker_do_not_affect_the_tasks_of_another(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        for _ in range(3):
            await tasks.beat("other", [])

        assert await owner.read_commands() == []

    async def test_a_heartbeat_changes_the_counter_and_the_number_of_held_tasks_is_listed(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await tasks.beat("w", [make_token("a")])
        before = await find_record(tasks, "w")

        await tasks.beat("w", [make_token("a")])

        after = await find_record(tasks, "w")
        assert before is not None
        assert after is not None
        assert before.counter != after.counter
        assert (before.holds, after.holds) == (1, 1)

    async def test_a_worker_that_claimed_without_a_heartbeat_is_listed(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await issue_and_claim(tasks, owner)

        assert await find_record(tasks, "w") is not None

    async def test_a_worker_that_left_is_not_listed(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [])
        await tasks.beat("other", [])

        await tasks.leave("w")

        assert [record.worker for record in await tasks.workers()] == ["other"]

    async def test_a_dead_worker_that_returns_is_listed_as_alive(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        await tasks.beat("w", [])
        before = await find_record(tasks, "w")
        await lose_tasks(store, tasks, "w")

        await tasks.beat("w", [])

        after = await find_record(tasks, "w")
        assert before is not None
        assert after is not None
        assert before.counter != after.counter


def list_lost_nodes(commands: list[Command | None]) -> list[str]:
    return [command.token.node_id for command in commands if isinstance(command, TaskLost)]


def get_started_flags(commands: list[Command | None]) -> dict[str, bool]:
    return {
        command.token.node_id: command.was_started
        for command in commands
        if isinstance(command, TaskLost)
    }


async def lose_tasks(store: Store, tasks: TaskQueue, worker: str) -> int:
    """Reports the tasks of a worker as lost and returns their number; 0 if the worker is not
    listed.
    """
    record = await find_record(tasks, worker)
    return 0 if record is None else await store.lose_worker_tasks(record)


async def find_record(tasks: TaskQueue, worker: str) -> WorkerRecord | None:
    records = [record for record in await tasks.workers() if record.worker == worker]
    return records[0] if records else None


# -- lists of workers and queues ---------------------------------------------------------------

WORKER_DESCRIPTION = WorkerInfo(
    host="h1",
    pid=7,
    queues=("one", "two"),
    handlers=("a", "b"),
    concurrency=4,
    started_at=1.5,
    version="0.1.0",
    claimed_at=2.5,
    tasks=(
        RunningTaskInfo(
            execution_id="e",
            node_id="n",
            item=3,
            attempt=2,
            workflow="w",
            handler="a",
            started_at=2.5,
        ),
    ),
)
DRAINING_DESCRIPTION = WorkerInfo(is_draining=True)
UNSERVED_ERROR = ErrorInfo(type="HandlerNotFoundError", message="no worker", retryable=False)


class WorkerRegistryRules(ConformanceFixtures):
    async def test_a_worker_is_listed_with_its_info(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [], about=WORKER_DESCRIPTION)

        record = await find_record(tasks, "w")

        assert record is not None
        assert (record.about, record.state) == (WORKER_DESCRIPTION, WorkerState.ALIVE)

    async def test_a_draining_worker_is_listed_as_draining(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [], about=WORKER_DESCRIPTION)

        await tasks.beat("w", [], about=DRAINING_DESCRIPTION)

        record = await find_record(tasks, "w")
        assert record is not None
        assert record.state is WorkerState.DRAINING

    async def test_dead_workers_are_listed_only_on_request(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        await tasks.beat("dead", [], about=WORKER_DESCRIPTION)
        await tasks.beat("alive", [])

        await lose_tasks(store, tasks, "dead")

        by_name = {record.worker: record for record in await tasks.workers(with_dead=True)}
        assert [record.worker for record in await tasks.workers()] == ["alive"]
        assert {name: str(record.state) for name, record in by_name.items()} == {
            "alive": "alive",
            "dead": "dead",
        }
        assert by_name["dead"].about == WORKER_DESCRIPTION

    async def test_a_dead_worker_that_returns_is_listed_once(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        await tasks.beat("w", [], about=WORKER_DESCRIPTION)
        await lose_tasks(store, tasks, "w")

        await tasks.beat("w", [], about=WORKER_DESCRIPTION)

        assert [str(record.state) for record in await tasks.workers(with_dead=True)] == ["alive"]

    async def test_a_worker_that_left_is_not_listed_among_the_dead(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [], about=WORKER_DESCRIPTION)

        await tasks.leave("w")

        assert list(await tasks.workers(with_dead=True)) == []

    async def test_the_number_of_listed_dead_workers_is_limited(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        for number in range(120):
            await tasks.beat(f"w{number}", [])
            await lose_tasks(store, tasks, f"w{number}")

        names = {record.worker for record in await tasks.workers(with_dead=True)}

        assert len(names) == 100
        assert "w119" in names

    async def test_every_heartbeat_reply_asks_a_drained_worker_to_drain(
        self, tasks: TaskQueue
    ) -> None:
        before = await tasks.beat("w", [], about=WORKER_DESCRIPTION)
        await tasks.beat("other", [])

        assert await tasks.drain("w")

        replies = [await tasks.beat("w", []) for _ in range(2)]
        assert not before.drains
        assert [reply.drains for reply in replies] == [True, True]
        assert not (await tasks.beat("other", [])).drains

    async def test_a_drained_worker_finishes_its_tasks(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))
        await claim_nodes(tasks, "w")

        assert await tasks.drain("w")

        assert await tasks.beat("w", [make_token("a")]) == HeartbeatReply(stop=[], drains=True)
        assert list(await tasks.report("w", [make_completion("a")])) == [True]

    async def test_an_unknown_worker_can_not_be_drained(self, tasks: TaskQueue) -> None:
        await tasks.beat("left", [])
        await tasks.leave("left")

        assert not await tasks.drain("unknown")
        assert not await tasks.drain("left")
        assert list(await tasks.workers()) == []

    async def test_a_worker_that_was_drained_and_left_can_return(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        for name in ("left", "dead"):
            await tasks.beat(name, [])
            await tasks.drain(name)
        await tasks.leave("left")
        await lose_tasks(store, tasks, "dead")

        replies = [await tasks.beat(name, []) for name in ("left", "dead")]

        assert [reply.drains for reply in replies] == [False, False]

    async def test_a_queue_is_listed_with_its_number_of_waiting_tasks(
        self, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        issued = [
            make_task("a", queue="one"),
            make_task("b", queue="two"),
            make_task("c", queue="two"),
        ]
        await owner.commit(Commit(sequence=0, tasks=issued))
        before = await read_depths(tasks)

        await claim_nodes(tasks, "w", "two", limit=1)

        assert before == {"one": 1, "two": 2}
        assert await read_depths(tasks) == {"one": 1, "two": 1}

    async def test_a_task_of_an_unserved_queue_fails_once(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        issued = [make_task(name, queue="one") for name in "abc"] + [
            make_task("other", queue="two")
        ]
        await owner.commit(Commit(sequence=0, tasks=issued))

        counts = [await reject_tasks(store, limit=2) for _ in range(3)]

        failed = [
            report for report in await owner.read_commands() if isinstance(report, TaskFailed)
        ]
        assert counts == [2, 1, 0]
        assert [report.token for report in failed] == [
            make_token("a"),
            make_token("b"),
            make_token("c"),
        ]
        assert {report.error.message for report in failed} == {"no worker"}
        assert await claim_nodes(tasks, "w") == ["other"]

    async def test_a_rejected_task_is_known_until_its_failure_is_consumed(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a", queue="one")]))

        await reject_tasks(store)

        assert list(await store.unknown_tasks(owner.partition, [make_token("a")])) == []

    async def test_a_claimed_task_is_not_rejected(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a", queue="one")]))
        await claim_nodes(tasks, "w", "one")

        assert await reject_tasks(store) == 0
        assert list(await tasks.report("w", [make_completion("a")])) == [True]

    async def test_a_task_that_waited_too_short_is_not_rejected(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a", queue="one")]))

        count = await store.reject_tasks("one", UNSERVED_ERROR, waiting_s=1e10, limit=READ_LIMIT)

        assert count == 0
        assert await claim_nodes(tasks, "w") == ["a"]

    async def test_a_forgotten_queue_returns_with_its_next_task(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await forget_empty_queue(store, tasks, owner)
        forgotten = await read_depths(tasks)

        await owner.commit(Commit(sequence=0, tasks=[make_task("b", queue="one")]))

        assert forgotten == {}
        assert await claim_nodes(tasks, "w") == ["b"]

    async def test_a_queue_that_replaces_a_forgotten_one_is_served(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await forget_empty_queue(store, tasks, owner)

        await owner.commit(Commit(sequence=0, tasks=[make_task("b", queue="two")]))

        assert await claim_nodes(tasks, "w") == ["b"]

    async def test_a_queue_with_a_task_is_not_forgotten(
        self, store: Store, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a", queue="one")]))

        for record in await tasks.queues():
            await store.forget_queue(record)

        assert await read_depths(tasks) == {"one": 1}


async def forget_empty_queue(store: Store, tasks: TaskQueue, owner: LeaseOwner) -> None:
    """Creates the queue `one` with a task, then removes the task and the empty queue."""
    await owner.commit(Commit(sequence=0, tasks=[make_task("a", queue="one")]))
    await claim_nodes(tasks, "w")
    await claim_nodes(tasks, "w")
    for record in await tasks.queues():
        await store.forget_queue(record)


async def read_depths(tasks: TaskQueue) -> dict[str, int]:
    return {record.queue: record.depth for record in await tasks.queues()}


async def reject_tasks(store: Store, *, limit: int = READ_LIMIT) -> int:
    return await store.reject_tasks("one", UNSERVED_ERROR, waiting_s=0, limit=limit)
