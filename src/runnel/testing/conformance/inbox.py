"""What is sent arrives in order, is read once by a lease, and stays until it is consumed."""

import asyncio
from contextlib import suppress

from runnel.core.commands import TaskCompleted
from runnel.errors import FencedError
from runnel.ports.blobs import BlobStore
from runnel.ports.store import Commit, Mailbox, Store, TaskQueue
from runnel.testing.clock import FakeClock
from runnel.testing.conformance.suite import ALL, Owner, Suite, hand_over, take_over
from runnel.testing.conformance.values import ROOT, done, message, task, token
from runnel.testing.harness import Harness


class InboxRules(Suite):
    async def test_messages_arrive_in_the_order_they_were_sent(
        self, mailbox: Mailbox, owner: Owner
    ) -> None:
        sent = [message(str(number)) for number in range(20)]

        await mailbox.send(sent[:5])
        for each in sent[5:]:
            await mailbox.send([each])

        assert await owner.commands() == sent

    async def test_messages_sent_before_anybody_owns_the_partition_are_kept(
        self, store: Store, mailbox: Mailbox
    ) -> None:
        await mailbox.send([message("early")])

        lease = await store.acquire(await store.route(ROOT), "one")

        assert await Owner(store, lease).commands() == [message("early")]

    async def test_a_large_value_is_there_with_its_message(
        self, mailbox: Mailbox, owner: Owner, blobs: BlobStore
    ) -> None:
        await mailbox.send([message("a")], blobs={"x1/input/a": b"large", "x1/input/b": b""})

        assert await owner.commands() == [message("a")]
        assert await blobs.get("x1/input/a") == b"large"
        assert await blobs.get("x1/input/b") == b""

    async def test_sending_nothing_is_fine(self, mailbox: Mailbox, owner: Owner) -> None:
        await mailbox.send([])

        assert await owner.commands() == []

    async def test_a_lease_reads_each_message_once(self, mailbox: Mailbox, owner: Owner) -> None:
        await mailbox.send([message("a")])
        await owner.read()
        await mailbox.send([message("b")])

        assert await owner.commands() == [message("b")]

    async def test_a_read_returns_at_most_its_limit(self, mailbox: Mailbox, owner: Owner) -> None:
        await mailbox.send([message(str(number)) for number in range(5)])

        first, second = await owner.read(limit=3), await owner.read(limit=3)

        assert [len(first), len(second)] == [3, 2]

    async def test_a_reader_that_waits_gets_the_message_without_time_passing(
        self, mailbox: Mailbox, owner: Owner
    ) -> None:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(owner.read(wait_s=60))
            await asyncio.sleep(0)
            await mailbox.send([message("a")])

        assert [entry.command for entry in reading.result()] == [message("a")]

    async def test_a_reader_waits_as_long_as_it_said(self, clock: FakeClock, owner: Owner) -> None:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(owner.read(wait_s=5))
            await clock.advance(4.9)
            was_done_early = reading.done()
            await clock.advance(0.2)

        assert (was_done_early, list(reading.result())) == (False, [])

    async def test_what_was_not_consumed_is_read_again_by_the_next_lease(
        self, mailbox: Mailbox, owner: Owner
    ) -> None:
        sent = [message(str(number)) for number in range(6)]
        await mailbox.send(sent)
        entries = await owner.read()

        await owner.consume(entries[2].position)

        assert await (await hand_over(owner)).commands() == sent[3:]

    async def test_what_was_read_and_not_consumed_survives_the_death_of_the_owner(
        self, harness: Harness, mailbox: Mailbox, owner: Owner
    ) -> None:
        await mailbox.send([message("a"), message("b")])
        entries = await owner.read()
        await owner.consume(entries[0].position)

        assert await (await take_over(harness, owner)).commands() == [message("b")]

    async def test_consuming_keeps_what_arrived_meanwhile(
        self, mailbox: Mailbox, owner: Owner
    ) -> None:
        await mailbox.send([message("a")])
        (entry,) = await owner.read()
        await mailbox.send([message("b")])

        await owner.consume(entry.position)

        assert await owner.commands() == [message("b")]
        assert await (await hand_over(owner)).commands() == [message("b")]

    async def test_each_message_is_consumed_once_over_many_owners(
        self, mailbox: Mailbox, owner: Owner
    ) -> None:
        sent = [message(str(number)) for number in range(9)]
        await mailbox.send(sent)
        consumed = []

        for _ in range(3):
            entries = await owner.read(limit=5)
            consumed += [entry.command for entry in entries[:3]]
            await owner.consume(entries[2].position)
            owner = await hand_over(owner)

        assert consumed == sent
        assert await owner.commands() == []

    async def test_messages_of_a_commit_arrive_at_their_aggregate(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, messages=[message("a"), message("b")]))

        assert await owner.commands() == [message("a"), message("b")]

    async def test_reports_and_messages_share_one_order(
        self, mailbox: Mailbox, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a"), task("b")]))
        await tasks.claim("w", None, limit=2, wait_s=0)

        await mailbox.send([message("1")])
        await tasks.report("w", [done("a")])
        await mailbox.send([message("2")])
        await tasks.report("w", [done("b")])

        assert await owner.commands() == [message("1"), done("a"), message("2"), done("b")]

    async def test_consuming_a_report_consumes_the_messages_before_it(
        self, mailbox: Mailbox, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a")]))
        await tasks.claim("w", None, limit=1, wait_s=0)
        await mailbox.send([message("before")])
        await tasks.report("w", [done("a")])
        await mailbox.send([message("behind")])
        entries = await owner.read(limit=2)

        await owner.consume(entries[-1].position)

        assert await (await hand_over(owner)).commands() == [message("behind")]

    async def test_a_former_owner_takes_no_entry_away_from_the_current_one(
        self, harness: Harness, mailbox: Mailbox, owner: Owner
    ) -> None:
        current = await take_over(harness, owner)
        await mailbox.send([message("a")])

        with suppress(FencedError):
            await owner.read()

        assert await current.commands() == [message("a")]

    async def test_a_report_is_delivered_or_its_task_is_unknown_after_a_takeover(
        self, harness: Harness, tasks: TaskQueue, owner: Owner
    ) -> None:
        await owner.commit(Commit(sequence=0, tasks=[task("a")]))
        await tasks.claim("w", None, limit=1, wait_s=0)
        await tasks.report("w", [done("a")])

        current = await take_over(harness, owner)

        entries = await current.read(limit=ALL)
        delivered = [
            entry.command.token for entry in entries if isinstance(entry.command, TaskCompleted)
        ]
        unknown = await current.store.unknown_tasks(current.partition, [token("a")])
        assert [*delivered, *unknown] == [token("a")]
