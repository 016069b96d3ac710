"""A task whose worker is gone, or does not know of it, is lost: once, and to its owner."""

from runnel.core.commands import Command, TaskFailed, TaskLost
from runnel.core.workflow import ErrorInfo
from runnel.ports.store import Commit, Store, TaskQueue
from runnel.ports.workers import Orders, RunningTask, WorkerAbout, WorkerRecord, WorkerState
from runnel.testing.conformance.claims import claim, issue_and_claim, start
from runnel.testing.conformance.suite import ALL, Owner, Suite, done, task, token


class WorkerRules(Suite):
    async def test_what_a_leaving_worker_holds_is_lost_at_once(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b"), task("c")]))
        await claim(tasks, "w", limit=2)

        await tasks.leave("w")

        assert lost(await owner.commands()) == ["a", "b"]
        assert await claim(tasks, "other") == ["c"]

    async def test_what_a_leaving_worker_holds_does_not_count_as_started(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await claim(tasks, "w")
        await start(tasks, "w", token("a"))

        await tasks.leave("w")

        assert was_started(await owner.commands()) == {"a": False, "b": False}

    async def test_what_a_dead_worker_holds_is_lost(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b"), task("c")]))
        await claim(tasks, "dead", limit=2)
        await claim(tasks, "alive")

        assert await lose(store, tasks, "dead") == 2

        assert lost(await owner.commands()) == ["a", "b"]
        assert list(await tasks.report("alive", [done("c")])) == [True]

    async def test_a_task_is_lost_once(self, store: Store, tasks: TaskQueue, owner: Owner) -> None:
        await issue_and_claim(tasks, owner)

        counts = [await lose(store, tasks, "w") for _ in range(2)]

        assert counts == [1, 0]
        assert lost(await owner.commands()) == ["a"]

    async def test_a_worker_nobody_knows_has_nothing_to_lose(self, store: Store) -> None:
        nobody = WorkerRecord(worker="nobody", counter=1, holds=0)

        assert await store.lose_tasks_of(nobody) == 0

    async def test_a_worker_that_gave_a_sign_since_it_was_judged_loses_nothing(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        judged = await record_of(tasks, "w")
        assert judged is not None
        await tasks.beat("w", [token("a")])

        assert await store.lose_tasks_of(judged) == 0
        assert list(await tasks.report("w", [done("a")])) == [True]

    async def test_a_report_after_the_task_was_lost_is_refused(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await lose(store, tasks, "w")

        assert list(await tasks.report("w", [done("a")])) == [False]
        assert lost(await owner.commands()) == ["a"]

    async def test_a_lost_task_tells_whether_it_had_started(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await claim(tasks, "w")
        await start(tasks, "w", token("a"))

        await lose(store, tasks, "w")

        assert was_started(await owner.commands()) == {"a": True, "b": False}

    async def test_what_a_worker_holds_that_dies_while_it_drains_does_not_count_as_started(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a")]))
        await tasks.claim("w", None, limit=5, wait_s=0, starts=True)
        await tasks.beat("w", [token("a")], about=WorkerAbout(is_draining=True))

        await lose(store, tasks, "w")

        assert was_started(await owner.commands()) == {"a": False}

    async def test_tasks_that_start_with_their_claim_have_started(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await tasks.claim("w", None, limit=5, wait_s=0, starts=True)

        await lose(store, tasks, "w")

        assert was_started(await owner.commands()) == {"a": True, "b": True}

    async def test_a_task_lost_by_missing_beats_has_killed_nobody(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await claim(tasks, "w")
        await start(tasks, "w", token("a"))

        for _ in range(2):
            await tasks.beat("w", [])

        assert was_started(await owner.commands()) == {"a": False, "b": False}

    async def test_a_lost_task_is_known_until_its_loss_is_consumed(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        await lose(store, tasks, "w")

        assert list(await store.unknown_tasks(owner.partition, [token("a")])) == []

    async def test_a_task_missing_in_two_beats_is_lost(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await claim(tasks, "w")

        await tasks.beat("w", [token("b")])
        after_one = lost(await owner.commands())
        await tasks.beat("w", [token("b")])

        assert (after_one, lost(await owner.commands())) == ([], ["a"])
        assert list(await tasks.report("w", [done("b")])) == [True]

    async def test_a_task_missing_in_one_beat_and_listed_in_the_next_is_kept(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        for holds in ([], [token("a")], [], [token("a")]):
            await tasks.beat("w", holds)

        assert await owner.commands() == []
        assert list(await tasks.report("w", [done("a")])) == [True]

    async def test_a_task_that_is_listed_is_kept_however_long_it_runs(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        for _ in range(50):
            await tasks.beat("w", [token("a")])

        assert await owner.commands() == []

    async def test_a_beat_names_what_the_worker_should_stop(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await claim(tasks, "w")
        await owner.commit(Commit(sequence=0, dropped=[token("a")]))

        orders = await tasks.beat("w", [token("a"), token("b"), token("c")])

        assert list(orders.stop) == [token("a"), token("c")]

    async def test_the_beats_of_one_worker_do_not_touch_the_tasks_of_another(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        for _ in range(3):
            await tasks.beat("other", [])

        assert await owner.commands() == []

    async def test_a_beat_moves_the_counter_and_tells_what_is_held(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)
        await tasks.beat("w", [token("a")])
        before = await record_of(tasks, "w")

        await tasks.beat("w", [token("a")])

        after = await record_of(tasks, "w")
        assert before is not None
        assert after is not None
        assert before.counter != after.counter
        assert (before.holds, after.holds) == (1, 1)

    async def test_a_worker_that_has_claimed_and_never_beaten_is_listed(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await issue_and_claim(tasks, owner)

        assert await record_of(tasks, "w") is not None

    async def test_a_worker_that_left_is_not_listed(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [])
        await tasks.beat("other", [])

        await tasks.leave("w")

        assert [record.worker for record in await tasks.workers()] == ["other"]

    async def test_a_dead_worker_that_comes_back_is_listed_as_alive(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        await tasks.beat("w", [])
        before = await record_of(tasks, "w")
        await lose(store, tasks, "w")

        await tasks.beat("w", [])

        after = await record_of(tasks, "w")
        assert before is not None
        assert after is not None
        assert before.counter != after.counter


def lost(commands: list[Command | None]) -> list[str]:
    return [command.token.node_id for command in commands if isinstance(command, TaskLost)]


def was_started(commands: list[Command | None]) -> dict[str, bool]:
    return {
        command.token.node_id: command.was_started
        for command in commands
        if isinstance(command, TaskLost)
    }


async def lose(store: Store, tasks: TaskQueue, worker: str) -> int:
    """As whoever judges it by its last record; a worker that is not listed has none."""
    record = await record_of(tasks, worker)
    return 0 if record is None else await store.lose_tasks_of(record)


async def record_of(tasks: TaskQueue, worker: str) -> WorkerRecord | None:
    found = [record for record in await tasks.workers() if record.worker == worker]
    return found[0] if found else None


# Workers and queues are seen as they are: alive, draining, dead; how much waits, and for whom.

ABOUT = WorkerAbout(
    host="h1",
    pid=7,
    queues=("one", "two"),
    handlers=("a", "b"),
    concurrency=4,
    started_at=1.5,
    version="0.1.0",
    claimed_at=2.5,
    tasks=(
        RunningTask(
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
DRAINING = WorkerAbout(is_draining=True)
UNSERVED = ErrorInfo(type="HandlerNotFoundError", message="nobody", retryable=False)


class RegistryRules(Suite):
    async def test_a_worker_is_listed_with_all_that_it_says_of_itself(
        self, tasks: TaskQueue
    ) -> None:
        await tasks.beat("w", [], about=ABOUT)

        record = await record_of(tasks, "w")

        assert record is not None
        assert (record.about, record.state) == (ABOUT, WorkerState.ALIVE)

    async def test_a_worker_that_drains_is_listed_so(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [], about=ABOUT)

        await tasks.beat("w", [], about=DRAINING)

        record = await record_of(tasks, "w")
        assert record is not None
        assert record.state is WorkerState.DRAINING

    async def test_a_dead_worker_is_listed_only_when_asked_for(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        await tasks.beat("dead", [], about=ABOUT)
        await tasks.beat("alive", [])

        await lose(store, tasks, "dead")

        found = {each.worker: each for each in await tasks.workers(with_dead=True)}
        assert [each.worker for each in await tasks.workers()] == ["alive"]
        assert {name: str(each.state) for name, each in found.items()} == {
            "alive": "alive",
            "dead": "dead",
        }
        assert found["dead"].about == ABOUT

    async def test_a_dead_worker_that_comes_back_is_listed_once(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        await tasks.beat("w", [], about=ABOUT)
        await lose(store, tasks, "w")

        await tasks.beat("w", [], about=ABOUT)

        assert [str(each.state) for each in await tasks.workers(with_dead=True)] == ["alive"]

    async def test_a_worker_that_left_is_gone(self, tasks: TaskQueue) -> None:
        await tasks.beat("w", [], about=ABOUT)

        await tasks.leave("w")

        assert list(await tasks.workers(with_dead=True)) == []

    async def test_dead_workers_do_not_gather(self, store: Store, tasks: TaskQueue) -> None:
        for number in range(120):
            await tasks.beat(f"w{number}", [])
            await lose(store, tasks, f"w{number}")

        found = {each.worker for each in await tasks.workers(with_dead=True)}

        assert len(found) == 100
        assert "w119" in found

    async def test_a_worker_that_is_drained_is_told_with_each_beat(self, tasks: TaskQueue) -> None:
        before = await tasks.beat("w", [], about=ABOUT)
        await tasks.beat("other", [])

        assert await tasks.drain("w")

        told = [await tasks.beat("w", []) for _ in range(2)]
        assert not before.drains
        assert [each.drains for each in told] == [True, True]
        assert not (await tasks.beat("other", [])).drains

    async def test_a_worker_that_is_drained_goes_on_with_what_it_holds(
        self, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a")]))
        await claim(tasks, "w")

        assert await tasks.drain("w")

        assert await tasks.beat("w", [token("a")]) == Orders(stop=[], drains=True)
        assert list(await tasks.report("w", [done("a")])) == [True]

    async def test_nobody_who_is_not_there_is_drained(self, tasks: TaskQueue) -> None:
        await tasks.beat("left", [])
        await tasks.leave("left")

        assert not await tasks.drain("nobody")
        assert not await tasks.drain("left")
        assert list(await tasks.workers()) == []

    async def test_a_worker_that_was_drained_and_left_may_come_back(
        self, store: Store, tasks: TaskQueue
    ) -> None:
        for name in ("left", "dead"):
            await tasks.beat(name, [])
            await tasks.drain(name)
        await tasks.leave("left")
        await lose(store, tasks, "dead")

        told = [await tasks.beat(name, []) for name in ("left", "dead")]

        assert [each.drains for each in told] == [False, False]

    async def test_a_queue_shows_what_waits_in_it(self, tasks: TaskQueue, owner: Owner) -> None:
        issued = [task("a", queue="one"), task("b", queue="two"), task("c", queue="two")]
        await owner.commit(Commit(sequence=0, tasks=issued))
        before = await depths(tasks)

        await claim(tasks, "w", "two", limit=1)

        assert before == {"one": 1, "two": 2}
        assert await depths(tasks) == {"one": 1, "two": 1}

    async def test_what_nobody_serves_fails_once(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        issued = [task(name, queue="one") for name in "abc"] + [task("other", queue="two")]
        await owner.commit(Commit(sequence=0, tasks=issued))

        counts = [await reject(store, limit=2) for _ in range(3)]

        failed = [each for each in await owner.commands() if isinstance(each, TaskFailed)]
        assert counts == [2, 1, 0]
        assert [each.token for each in failed] == [token("a"), token("b"), token("c")]
        assert {each.error.message for each in failed} == {"nobody"}
        assert await claim(tasks, "w") == ["other"]

    async def test_what_was_rejected_is_known_until_its_failure_is_consumed(
        self, store: Store, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a", queue="one")]))

        await reject(store)

        assert list(await store.unknown_tasks(owner.partition, [token("a")])) == []

    async def test_what_a_worker_has_claimed_is_not_rejected(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a", queue="one")]))
        await claim(tasks, "w", "one")

        assert await reject(store) == 0
        assert list(await tasks.report("w", [done("a")])) == [True]

    async def test_what_has_not_waited_for_long_is_not_rejected(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a", queue="one")]))

        count = await store.reject_tasks("one", UNSERVED, waiting_s=1e10, limit=ALL)

        assert count == 0
        assert await claim(tasks, "w") == ["a"]

    async def test_an_empty_queue_can_be_forgotten_and_comes_back_with_its_next_task(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await forget_served(store, tasks, owner)
        forgotten = await depths(tasks)

        await owner.commit(Commit(sequence=0, tasks=[task("b", queue="one")]))

        assert forgotten == {}
        assert await claim(tasks, "w") == ["b"]

    async def test_a_queue_that_comes_in_the_place_of_a_forgotten_one_is_served(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await forget_served(store, tasks, owner)

        await owner.commit(Commit(sequence=0, tasks=[task("b", queue="two")]))

        assert await claim(tasks, "w") == ["b"]

    async def test_a_queue_with_a_task_is_not_forgotten(
        self, store: Store, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a", queue="one")]))

        for record in await tasks.queues():
            await store.forget_queue(record)

        assert await depths(tasks) == {"one": 1}


async def forget_served(store: Store, tasks: TaskQueue, owner: Owner) -> None:
    """The queue `one` had a task, and is empty and forgotten now."""
    await owner.commit(Commit(sequence=0, tasks=[task("a", queue="one")]))
    await claim(tasks, "w")
    await claim(tasks, "w")
    for record in await tasks.queues():
        await store.forget_queue(record)


async def depths(tasks: TaskQueue) -> dict[str, int]:
    return {record.queue: record.depth for record in await tasks.queues()}


async def reject(store: Store, *, limit: int = ALL) -> int:
    return await store.reject_tasks("one", UNSERVED, waiting_s=0, limit=limit)
