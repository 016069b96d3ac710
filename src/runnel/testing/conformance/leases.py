"""Rules for leases, for the list of orchestrators and for messages that cannot be read.

A partition has one owner at a time; each lease has a higher epoch and a new nonce.
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
    async def test_a_free_partition_is_seen_as_free(self, store: Store) -> None:
        assert await store.observe(await store.route(ROOT_ID)) is None

    async def test_a_held_partition_shows_its_owner(self, store: Store, owner: LeaseOwner) -> None:
        record = await store.observe(owner.partition)

        assert record is not None
        assert (record.owner, record.epoch) == ("one", owner.lease.epoch)

    async def test_a_held_partition_is_not_acquired(self, store: Store, owner: LeaseOwner) -> None:
        with pytest.raises(LeaseHeldError) as caught:
            await store.acquire(owner.partition, "two")

        assert caught.value.owner == "one"

    async def test_a_lease_that_has_changed_since_it_was_judged_dead_is_not_acquired(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        judged = await store.observe(owner.partition)
        await store.renew(owner.lease)

        with pytest.raises(LeaseHeldError):
            await store.acquire(owner.partition, "two", expected=judged)

    async def test_somebody_elses_record_does_not_open_a_held_partition(
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

    async def test_each_turn_has_a_higher_epoch_and_a_new_nonce(
        self, harness: Harness, owner: LeaseOwner
    ) -> None:
        turns = [owner]
        turns.append(await hand_over(turns[-1]))
        turns.append(await take_over(harness, turns[-1]))

        epochs = [turn.lease.epoch for turn in turns]
        assert epochs == sorted(set(epochs))
        assert len({turn.lease.nonce for turn in turns}) == len(turns)

    async def test_renewing_moves_the_counter(self, store: Store, owner: LeaseOwner) -> None:
        before = await store.observe(owner.partition)

        await store.renew(owner.lease)

        after = await store.observe(owner.partition)
        assert before is not None
        assert after is not None
        assert before.counter != after.counter

    async def test_a_former_owner_does_not_renew(
        self, harness: Harness, store: Store, owner: LeaseOwner
    ) -> None:
        await take_over(harness, owner)

        with pytest.raises(FencedError):
            await store.renew(owner.lease)

    async def test_a_lease_that_was_released_is_not_renewed(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await store.release(owner.lease)

        with pytest.raises(FencedError):
            await store.renew(owner.lease)

    async def test_a_former_owner_that_releases_changes_nothing(
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

    async def test_an_owned_partition_exists(self, store: Store, owner: LeaseOwner) -> None:
        assert owner.partition in await store.partitions()

    async def test_a_home_can_be_acquired(self, backend: Backend) -> None:
        home = await backend.claim_home_partition("one")

        lease = await backend.store.acquire(home, "one")

        assert lease.partition == home

    async def test_an_id_always_routes_to_the_same_partition_as_its_children(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        routes = {await store.route(f"{ROOT_ID}{child}") for child in ("", ".a.1", ".a.1.b.2.1")}

        assert routes == {owner.partition}

    async def test_a_limit_routes_to_a_partition_that_exists(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        assert await store.route("limit:a.b") in await store.partitions()


# -- an orchestrator is listed until it leaves or is found dead --------------------------------


class OrchestratorPresenceRules(ConformanceFixtures):
    async def test_who_attends_is_listed_with_a_sign_that_changes(self, store: Store) -> None:
        first = get_counters(await store.heartbeat_orchestrator("one"))
        await store.heartbeat_orchestrator("two")

        second = get_counters(await store.heartbeat_orchestrator("one"))

        assert list(first) == ["one"]
        assert sorted(second) == ["one", "two"]
        assert first["one"] != second["one"]

    async def test_who_departs_is_not_listed(self, store: Store) -> None:
        await store.heartbeat_orchestrator("one")
        await store.heartbeat_orchestrator("two")

        await store.unregister_orchestrator("one")

        assert get_counters(await store.heartbeat_orchestrator("two")).keys() == {"two"}

    async def test_who_was_judged_dead_is_not_listed(self, store: Store) -> None:
        judged = get_counters(await store.heartbeat_orchestrator("dead"))["dead"]

        await store.unregister_orchestrator("dead", counter=judged)

        assert get_counters(await store.heartbeat_orchestrator("one")).keys() == {"one"}

    async def test_who_gave_a_sign_since_it_was_judged_stays(self, store: Store) -> None:
        judged = get_counters(await store.heartbeat_orchestrator("alive"))["alive"]
        await store.heartbeat_orchestrator("alive")

        await store.unregister_orchestrator("alive", counter=judged)

        assert get_counters(await store.heartbeat_orchestrator("one")).keys() == {"alive", "one"}

    async def test_who_comes_back_shows_no_sign_that_was_seen_before(self, store: Store) -> None:
        before = get_counters(await store.heartbeat_orchestrator("one"))["one"]
        await store.unregister_orchestrator("one")

        assert get_counters(await store.heartbeat_orchestrator("one"))["one"] != before

    async def test_departing_twice_is_not_an_error(self, store: Store) -> None:
        await store.heartbeat_orchestrator("one")

        for _ in range(2):
            await store.unregister_orchestrator("one")

        assert get_counters(await store.heartbeat_orchestrator("two")).keys() == {"two"}


def get_counters(records: Sequence[OrchestratorRecord]) -> dict[str, int]:
    return {record.owner: record.counter for record in records}


# -- a message that can't be read keeps its position, and blocks no other ----------------------

NOT_JSON = b"\xff\x00 not a message"
TRUNCATED = b'[1,{"type":"CancelExecution","execu'


class UnreadableMessageRules(ConformanceFixtures):
    async def test_an_unreadable_message_comes_with_its_body_and_what_is_wrong(
        self, harness: Harness, owner: LeaseOwner
    ) -> None:
        await harness.inject_message(owner.partition, NOT_JSON)

        (entry,) = await owner.read()

        assert (entry.command, entry.body) == (None, NOT_JSON)
        assert entry.problem

    async def test_an_unreadable_message_keeps_its_place(
        self, harness: Harness, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await mailbox.send([make_message("before")])
        await harness.inject_message(owner.partition, TRUNCATED)
        await mailbox.send([make_message("behind")])

        assert await owner.read_commands() == [make_message("before"), None, make_message("behind")]

    async def test_an_unreadable_message_is_consumed_like_any_other(
        self, harness: Harness, mailbox: Mailbox, owner: LeaseOwner
    ) -> None:
        await harness.inject_message(owner.partition, NOT_JSON)
        await mailbox.send([make_message("behind")])
        entries = await owner.read()

        await owner.consume(entries[0].position)

        assert await (await hand_over(owner)).read_commands() == [make_message("behind")]
