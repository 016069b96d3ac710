"""Rules for inboxes and timers.

Messages arrive in order. The owner of a lease reads each message once. A message stays in the inbox
until a commit consumes it.
"""

import asyncio
from contextlib import suppress

from runnel.core.commands import TaskCompleted
from runnel.errors import FencedError
from runnel.ports.records import BlobStore
from runnel.ports.store import Commit, Mailbox, Store, TaskQueue
from runnel.testing.clock import FakeClock
from runnel.testing.conformance.suite import (
    READ_LIMIT,
    ROOT_ID,
    ConformanceFixtures,
    LeaseOwner,
    hand_over,
    make_completion,
    make_message,
    make_task,
    make_timer,
    make_timer_key,
    make_token,
    take_over,
)
from runnel.testing.harness import Harness


class InboxRules(ConformanceFixtures):
    async def test_messages_arrive_in_the_order_they_were_sent(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        sent = [make_message(str(number)) for number in range(20)]

        await mailbox.send(sent[:5])
        for command in sent[5:]:
            await mailbox.send([command])

        assert await owner.read_commands() == sent

    async def test_messages_sent_before_the_partition_has_an_owner_are_kept(
        self, store: Store, mailbox: Mailbox
    ) -> None:
        await mailbox.send([make_message("early")])

        lease = await store.acquire(await store.route(ROOT_ID), "one")

        assert await LeaseOwner(store, lease).read_commands() == [make_message("early")]

    async def test_the_blobs_of_a_message_are_stored_with_it(
        self, mailbox: Mailbox, owner: LeaseOwner, blobs: BlobStore
    ) -> None:
        await mailbox.send([make_message("a")], blobs={"x1/input/a": b"large", "x1/input/b": b""})

        assert await owner.read_commands() == [make_message("a")]
        assert await blobs.get("x1/input/a") == b"large"
        assert await blobs.get("x1/input/b") == b""

    async def test_sending_no_messages_is_allowed(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([])

        assert await owner.read_commands() == []

    async def test_a_lease_reads_each_message_once(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message("a")])
        await owner.read()
        await mailbox.send([make_message("b")])

        assert await owner.read_commands() == [make_message("b")]

    async def test_a_read_returns_at_most_its_limit(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message(str(number)) for number in range(5)])

        first, second = await owner.read(limit=3), await owner.read(limit=3)

        assert [len(first), len(second)] == [3, 2]

    async def test_a_waiting_inbox_reader_gets_a_message_at_once(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(owner.read(wait_s=60))
            await asyncio.sleep(0)
            await mailbox.send([make_message("a")])

        assert [entry.command for entry in reading.result()] == [make_message("a")]

    async def test_an_inbox_reader_waits_for_its_full_time(
        self, clock: FakeClock, owner: LeaseOwner
    ) -> None:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(owner.read(wait_s=5))
            await clock.advance(4.9)
            was_done_early = reading.done()
            await clock.advance(0.2)

        assert (was_done_early, list(reading.result())) == (False, [])

    async def test_unconsumed_messages_are_read_again_by_the_next_lease(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        sent = [make_message(str(number)) for number in range(6)]
        await mailbox.send(sent)
        entries = await owner.read()

        await owner.consume(entries[2].position)

        assert await (await hand_over(owner)).read_commands() == sent[3:]

    async def test_read_but_unconsumed_messages_survive_the_death_of_the_owner(
        self, harness: Harness, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message("a"), make_message("b")])
        entries = await owner.read()
        await owner.consume(entries[0].position)

        assert await (await take_over(harness, owner)).read_commands() == [make_message("b")]

    async def test_consuming_keeps_messages_that_arrived_meanwhile(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message("a")])
        (entry,) = await owner.read()
        await mailbox.send([make_message("b")])

        await owner.consume(entry.position)

        assert await owner.read_commands() == [make_message("b")]
        assert await (await hand_over(owner)).read_commands() == [make_message("b")]

    async def test_each_message_is_consumed_once_over_many_owners(
        self, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        sent = [make_message(str(number)) for number in range(9)]
        await mailbox.send(sent)
        consumed = []

        for _ in range(3):
            entries = await owner.read(limit=5)
            consumed += [entry.command for entry in entries[:3]]
            await owner.consume(entries[2].position)
            owner = await hand_over(owner)

        assert consumed == sent
        assert await owner.read_commands() == []

    async def test_messages_of_a_commit_reach_the_inbox_of_their_aggregate(
        self, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, messages=[make_message("a"), make_message("b")]))

        assert await owner.read_commands() == [make_message("a"), make_message("b")]

    async def test_reports_and_messages_share_one_order(
        self, mailbox: Mailbox, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a"), make_task("b")]))
        await tasks.claim("w", None, limit=2, wait_s=0)

        await mailbox.send([make_message("1")])
        await tasks.report("w", [make_completion("a")])
        await mailbox.send([make_message("2")])
        await tasks.report("w", [make_completion("b")])

        assert await owner.read_commands() == [
            make_message("1"),
            make_completion("a"),
            make_message("2"),
            make_completion("b"),
        ]

    async def test_consuming_a_report_consumes_the_messages_before_it(
        self, mailbox: Mailbox, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))
        await tasks.claim("w", None, limit=1, wait_s=0)
        await mailbox.send([make_message("before")])
        await tasks.report("w", [make_completion("a")])
        await mailbox.send([make_message("after")])
        entries = await owner.read(limit=2)

        await owner.consume(entries[-1].position)

        assert await (await hand_over(owner)).read_commands() == [make_message("after")]

    async def test_a_former_owner_takes_no_message_from_the_current_one(
        self, harness: Harness, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        current = await take_over(harness, owner)
        await mailbox.send([make_message("a")])

        with suppress(FencedError):
            await owner.read()

        assert await current.read_commands() == [make_message("a")]

    async def test_a_report_is_delivered_or_its_task_is_unknown_after_a_takeover(
        self, harness: Harness, tasks: TaskQueue, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[make_task("a")]))
        await tasks.claim("w", None, limit=1, wait_s=0)
        await tasks.report("w", [make_completion("a")])

        current = await take_over(harness, owner)

        entries = await current.read(limit=READ_LIMIT)
        delivered = [
            entry.command.token for entry in entries if isinstance(entry.command, TaskCompleted)
        ]
        unknown = await current.store.unknown_tasks(current.partition, [make_token("a")])
        assert [*delivered, *unknown] == [make_token("a")]


# -- timers are due in order, stay until cleared, and survive their owner -----------------------


class TimerRules(ConformanceFixtures):
    async def test_due_timers_come_earliest_first(self, owner: LeaseOwner) -> None:
        timers = [make_timer("c", due=3.0), make_timer("a", due=1.0), make_timer("b", due=2.0)]

        await owner.commit(Commit(sequence=0, timers_set=timers))

        assert await list_due_nodes(owner, 10.0) == ["a", "b", "c"]

    async def test_a_timer_is_due_at_its_time_but_not_before(self, owner: LeaseOwner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[make_timer("a", due=2.0)]))

        assert await list_due_nodes(owner, 1.999) == []
        assert await list_due_nodes(owner, 2.0) == ["a"]

    async def test_due_timers_stay_until_a_commit_clears_them(self, owner: LeaseOwner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[make_timer("a", due=1.0)]))
        before = [await list_due_nodes(owner, 5.0), await list_due_nodes(owner, 5.0)]

        await owner.commit(Commit(sequence=0, timers_cleared=[make_timer_key("a")]))

        assert (before, await list_due_nodes(owner, 5.0)) == ([["a"], ["a"]], [])

    async def test_a_read_of_due_timers_returns_at_most_its_limit(self, owner: LeaseOwner) -> None:
        timers = [make_timer(f"t{number}", due=float(number)) for number in range(9)]
        await owner.commit(Commit(sequence=0, timers_set=timers))

        due = await owner.store.due_timers(owner.lease, 100.0, limit=2)

        assert [timer.key.node_id for timer in due] == ["t0", "t1"]

    async def test_setting_a_timer_again_changes_its_time(self, owner: LeaseOwner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[make_timer("a", due=1.0, attempt=1)]))
        await owner.commit(Commit(sequence=0, timers_set=[make_timer("a", due=9.0, attempt=2)]))

        early = await list_due_nodes(owner, 5.0)
        late = await owner.store.due_timers(owner.lease, 9.0, limit=READ_LIMIT)

        assert (early, list(late)) == ([], [make_timer("a", due=9.0, attempt=2)])

    async def test_a_timer_cleared_and_set_by_one_commit_is_set(self, owner: LeaseOwner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[make_timer("a", due=1.0)]))
        moved = make_timer("a", due=3.0)

        await owner.commit(
            Commit(sequence=0, timers_set=[moved], timers_cleared=[make_timer_key("a")])
        )

        assert await owner.store.next_due(owner.lease) == 3.0

    async def test_clearing_a_timer_that_is_not_set_is_allowed(self, owner: LeaseOwner) -> None:
        await owner.commit(Commit(sequence=0, timers_cleared=[make_timer_key("a")]))

        assert await owner.store.next_due(owner.lease) is None

    async def test_the_next_due_time_is_that_of_the_earliest_timer(self, owner: LeaseOwner) -> None:
        timers = [make_timer("b", due=7.0), make_timer("a", due=4.0)]
        await owner.commit(Commit(sequence=0, timers_set=timers))
        first = await owner.store.next_due(owner.lease)

        await owner.commit(Commit(sequence=0, timers_cleared=[make_timer_key("a")]))

        assert (first, await owner.store.next_due(owner.lease)) == (4.0, 7.0)

    async def test_timers_survive_the_death_of_their_owner(
        self, harness: Harness, owner: LeaseOwner
    ) -> None:
        timers = [make_timer("b", due=2.0, attempt=3), make_timer("a", due=1.0)]
        await owner.commit(Commit(sequence=0, timers_set=timers))

        current = await take_over(harness, owner)

        due = await current.store.due_timers(current.lease, 5.0, limit=READ_LIMIT)
        assert list(due) == [make_timer("a", due=1.0), make_timer("b", due=2.0, attempt=3)]

    async def test_a_cleared_timer_stays_cleared_for_the_next_owner(
        self, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[make_timer("a", due=1.0)]))
        await owner.commit(Commit(sequence=0, timers_cleared=[make_timer_key("a")]))

        assert await list_due_nodes(await hand_over(owner), 5.0) == []

    async def test_a_partition_without_timers_has_no_next_due_time(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        assert await store.next_due(owner.lease) is None

    async def test_the_store_reports_timers_that_are_not_set(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        timers = [make_timer("a", due=1.0), make_timer("b", due=2.0)]
        await owner.commit(Commit(sequence=0, timers_set=timers))
        await owner.commit(Commit(sequence=0, timers_cleared=[make_timer_key("b")]))
        keys = [make_timer_key(name) for name in "abc"]

        unset = await store.unset_timers(owner.partition, keys)

        assert list(unset) == [make_timer_key("b"), make_timer_key("c")]
        assert list(await store.unset_timers(owner.partition, [])) == []


async def list_due_nodes(owner: LeaseOwner, now: float) -> list[str]:
    timers = await owner.store.due_timers(owner.lease, now, limit=READ_LIMIT)
    return [timer.key.node_id for timer in timers]
