"""A task whose worker is gone, or does not know of it, is lost: once, and to its owner."""

from runnel.core.commands import Command, TaskLost
from runnel.ports.registry import WorkerAbout, WorkerRecord
from runnel.ports.store import Commit, Store, TaskQueue
from runnel.testing.conformance.claims import claim, start
from runnel.testing.conformance.reports import issue_and_claim
from runnel.testing.conformance.suite import Owner, Suite
from runnel.testing.conformance.values import done, task, token


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
