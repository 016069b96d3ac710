"""Rules for leases, for the list of orchestrators and for messages that can't be read.

A partition has one owner at a time. Each lease has a higher epoch and a new nonce.
"""

from collections.abc import Sequence

import pytest

from runnel.errors import FencedError, LeaseHeldError
from runnel.ports import Backend
from runnel.ports.store import LeaseRecord, Mailbox, Store
from runnel.ports.workers import OrchestratorRecord
from runnel.testing.conformance.suite import (
    ROOT_ID,
    ConformanceFixtures,
    LeaseOwner,
    hand_over,
    make_message,
    take_over,
)
from runnel.testing.harness import Harness


class LeaseRules(ConformanceFixtures):
    async def test_a_free_partition_has_no_lease_record(self, store: Store) -> None:
        assert await store.observe(await store.route(ROOT_ID)) is None

    async def test_a_held_partition_shows_its_owner(self, store: Store, owner: LeaseOwner) -> None:
        record = await store.observe(owner.partition)

        assert record is not None
        assert (record.owner, record.epoch) == ("one", owner.lease.epoch)

    async def test_a_held_partition_can_not_be_acquired(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        with pytest.raises(LeaseHeldError) as caught:
            await store.acquire(owner.partition, "two")

        assert caught.value.owner == "one"

    async def test_a_lease_that_changed_after_it_was_judged_dead_is_not_acquired(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        judged = await store.observe(owner.partition)
        await store.renew(owner.lease)

        with pytest.raises(LeaseHeldError):
            await store.acquire(owner.partition, "two", expected=judged)

    async def test_a_forged_lease_record_does_not_allow_a_takeover(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        forged = LeaseRecord(partition=owner.partition, owner="x", epoch=0, counter=0)

        with pytest.raises(LeaseHeldError):
            await store.acquire(owner.partition, "two", expected=forged)

    async def test_a_released_partition_is_acquired_at_once(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await store.release(owner.lease)
        seen = await store.observe(owner.partition)

        lease = await store.acquire(owner.partition, "two")

        assert (seen, lease.owner) == (None, "two")

    async def test_a_dead_owner_is_taken_over(
        self, harness: Harness, store: Store, owner: LeaseOwner
    ) -> None:
        current = await take_over(harness, owner)

        record = await store.observe(owner.partition)
        assert record is not None
        assert (record.owner, record.epoch) == ("two", current.lease.epoch)

    async def test_each_lease_has_a_higher_epoch_and_a_new_nonce(
        self, harness: Harness, owner: LeaseOwner
    ) -> None:
        owners = [owner]
        owners.append(await hand_over(owners[-1]))
        owners.append(await take_over(harness, owners[-1]))

        epochs = [holder.lease.epoch for holder in owners]
        assert epochs == sorted(set(epochs))
        assert len({holder.lease.nonce for holder in owners}) == len(owners)

    async def test_renewing_a_lease_changes_its_counter(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        before = await store.observe(owner.partition)

        await store.renew(owner.lease)

        after = await store.observe(owner.partition)
        assert before is not None
        assert after is not None
        assert before.counter != after.counter

    async def test_a_former_owner_can_not_renew_its_lease(
        self, harness: Harness, store: Store, owner: LeaseOwner
    ) -> None:
        await take_over(harness, owner)

        with pytest.raises(FencedError):
            await store.renew(owner.lease)

    async def test_a_released_lease_can_not_be_renewed(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await store.release(owner.lease)

        with pytest.raises(FencedError):
            await store.renew(owner.lease)

    async def test_a_release_by_a_former_owner_changes_nothing(
        self, harness: Harness, store: Store, owner: LeaseOwner
    ) -> None:
        current = await take_over(harness, owner)

        await store.release(owner.lease)

        record = await store.observe(owner.partition)
        assert record is not None
        assert record.owner == "two"
        await store.renew(current.lease)

    async def test_releasing_twice_is_not_an_error(self, store: Store, owner: LeaseOwner) -> None:
        await store.release(owner.lease)
        await store.release(owner.lease)

        assert await store.observe(owner.partition) is None

    async def test_an_owned_partition_is_listed(self, store: Store, owner: LeaseOwner) -> None:
        assert owner.partition in await store.partitions()

    async def test_a_partition_with_a_message_has_work(
        self, store: Store, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message("a")])
        await store.release(owner.lease)

        assert owner.partition in await store.partitions_with_work()

    async def test_the_home_partition_can_be_acquired(self, backend: Backend) -> None:
        home = await backend.claim_home_partition("one")

        lease = await backend.store.acquire(home, "one")

        assert lease.partition == home

    async def test_an_execution_routes_to_the_same_partition_as_its_children(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        routes = {await store.route(f"{ROOT_ID}{child}") for child in ("", ".a.1", ".a.1.b.2.1")}

        assert routes == {owner.partition}

    async def test_a_concurrency_key_routes_to_an_existing_partition(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        assert await store.route("limit:a.b") in await store.partitions()


# -- an orchestrator is listed until it unregisters or is declared dead -------------------------


class OrchestratorPresenceRules(ConformanceFixtures):
    async def test_an_orchestrator_is_listed_with_a_counter_that_each_heartbeat_changes(
        self, store: Store
    ) -> None:
        first = get_counters(await store.heartbeat_orchestrator("one"))
        await store.heartbeat_orchestrator("two")

        second = get_counters(await store.heartbeat_orchestrator("one"))

        assert list(first) == ["one"]
        assert sorted(second) == ["one", "two"]
        assert first["one"] != second["one"]

    async def test_an_orchestrator_that_unregisters_is_not_listed(self, store: Store) -> None:
        await store.heartbeat_orchestrator("one")
        await store.heartbeat_orchestrator("two")

        await store.unregister_orchestrator("one")

        assert get_counters(await store.heartbeat_orchestrator("two")).keys() == {"two"}

    async def test_an_orchestrator_that_was_judged_dead_is_not_listed(self, store: Store) -> None:
        judged = get_counters(await store.heartbeat_orchestrator("dead"))["dead"]

        await store.unregister_orchestrator("dead", counter=judged)

        assert get_counters(await store.heartbeat_orchestrator("one")).keys() == {"one"}

    async def test_an_orchestrator_with_a_newer_heartbeat_stays_listed(self, store: Store) -> None:
        judged = get_counters(await store.heartbeat_orchestrator("alive"))["alive"]
        await store.heartbeat_orchestrator("alive")

        await store.unregister_orchestrator("alive", counter=judged)

        assert get_counters(await store.heartbeat_orchestrator("one")).keys() == {"alive", "one"}

    async def test_an_orchestrator_that_returns_has_a_counter_never_used_before(
        self, store: Store
    ) -> None:
        before = get_counters(await store.heartbeat_orchestrator("one"))["one"]
        await store.unregister_orchestrator("one")

        assert get_counters(await store.heartbeat_orchestrator("one"))["one"] != before

    async def test_unregistering_twice_is_not_an_error(self, store: Store) -> None:
        await store.heartbeat_orchestrator("one")

        for _ in range(2):
            await store.unregister_orchestrator("one")

        assert get_counters(await store.heartbeat_orchestrator("two")).keys() == {"two"}


def get_counters(records: Sequence[OrchestratorRecord]) -> dict[str, int]:
    return {record.owner: record.counter for record in records}


# -- a message that can't be read keeps its position and does not block others ------------------

NOT_JSON = b"\xff\x00 not a message"
TRUNCATED = b'[1,{"type":"CancelExecution","execu'


class UnreadableMessageRules(ConformanceFixtures):
    async def test_an_unreadable_message_has_its_body_and_the_problem(
        self, harness: Harness, owner: LeaseOwner
    ) -> None:
        await harness.inject_message(owner.partition, NOT_JSON)

        (entry,) = await owner.read()

        assert (entry.command, entry.body) == (None, NOT_JSON)
        assert entry.problem

    async def test_an_unreadable_message_keeps_its_position(
        self, harness: Harness, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message("before")])
        await harness.inject_message(owner.partition, TRUNCATED)
        await mailbox.send([make_message("after")])

        assert await owner.read_commands() == [make_message("before"), None, make_message("after")]

    async def test_an_unreadable_message_is_consumed_like_any_other(
        self, harness: Harness, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await harness.inject_message(owner.partition, NOT_JSON)
        await mailbox.send([make_message("after")])
        entries = await owner.read()

        await owner.consume(entries[0].position)

        assert await (await hand_over(owner)).read_commands() == [make_message("after")]
