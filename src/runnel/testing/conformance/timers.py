"""Timers are due in order, stay until cleared, and outlive their owner."""

from runnel.ports.store import Commit, Store
from runnel.testing.conformance.suite import ALL, Owner, Suite, hand_over, take_over
from runnel.testing.conformance.values import timer, timer_key
from runnel.testing.harness import Harness


class TimerRules(Suite):
    async def test_due_timers_come_earliest_first(self, owner: Owner) -> None:
        timers = [timer("c", due=3.0), timer("a", due=1.0), timer("b", due=2.0)]

        await owner.commit(Commit(sequence=0, timers_set=timers))

        assert await due(owner, 10.0) == ["a", "b", "c"]

    async def test_a_timer_is_due_at_its_time_and_not_before(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[timer("a", due=2.0)]))

        assert await due(owner, 1.999) == []
        assert await due(owner, 2.0) == ["a"]

    async def test_due_timers_stay_until_a_commit_clears_them(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[timer("a", due=1.0)]))
        before = [await due(owner, 5.0), await due(owner, 5.0)]

        await owner.commit(Commit(sequence=0, timers_cleared=[timer_key("a")]))

        assert (before, await due(owner, 5.0)) == ([["a"], ["a"]], [])

    async def test_a_read_of_due_timers_returns_at_most_its_limit(self, owner: Owner) -> None:
        timers = [timer(f"t{number}", due=float(number)) for number in range(9)]
        await owner.commit(Commit(sequence=0, timers_set=timers))

        found = await owner.store.due_timers(owner.lease, 100.0, limit=2)

        assert [each.key.node_id for each in found] == ["t0", "t1"]

    async def test_setting_a_timer_again_moves_it(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[timer("a", due=1.0, attempt=1)]))
        await owner.commit(Commit(sequence=0, timers_set=[timer("a", due=9.0, attempt=2)]))

        early = await due(owner, 5.0)
        late = await owner.store.due_timers(owner.lease, 9.0, limit=ALL)

        assert (early, list(late)) == ([], [timer("a", due=9.0, attempt=2)])

    async def test_a_timer_cleared_and_set_by_one_commit_is_set(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[timer("a", due=1.0)]))
        moved = timer("a", due=3.0)

        await owner.commit(Commit(sequence=0, timers_set=[moved], timers_cleared=[timer_key("a")]))

        assert await owner.store.next_due(owner.lease) == 3.0

    async def test_clearing_a_timer_that_is_not_set_is_fine(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, timers_cleared=[timer_key("a")]))

        assert await owner.store.next_due(owner.lease) is None

    async def test_the_next_due_time_is_that_of_the_earliest_timer(self, owner: Owner) -> None:
        timers = [timer("b", due=7.0), timer("a", due=4.0)]
        await owner.commit(Commit(sequence=0, timers_set=timers))
        first = await owner.store.next_due(owner.lease)

        await owner.commit(Commit(sequence=0, timers_cleared=[timer_key("a")]))

        assert (first, await owner.store.next_due(owner.lease)) == (4.0, 7.0)

    async def test_timers_outlive_their_owner(self, harness: Harness, owner: Owner) -> None:
        timers = [timer("b", due=2.0, attempt=3), timer("a", due=1.0)]
        await owner.commit(Commit(sequence=0, timers_set=timers))

        current = await take_over(harness, owner)

        found = await current.store.due_timers(current.lease, 5.0, limit=ALL)
        assert list(found) == [timer("a", due=1.0), timer("b", due=2.0, attempt=3)]

    async def test_a_cleared_timer_stays_cleared_for_the_next_owner(self, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0, timers_set=[timer("a", due=1.0)]))
        await owner.commit(Commit(sequence=0, timers_cleared=[timer_key("a")]))

        assert await due(await hand_over(owner), 5.0) == []

    async def test_a_partition_without_timers_has_no_next_due_time(
        self, store: Store, owner: Owner
    ) -> None:
        assert await store.next_due(owner.lease) is None

    async def test_a_timer_that_is_not_set_is_known_as_such(
        self, store: Store, owner: Owner
    ) -> None:
        timers = [timer("a", due=1.0), timer("b", due=2.0)]
        await owner.commit(Commit(sequence=0, timers_set=timers))
        await owner.commit(Commit(sequence=0, timers_cleared=[timer_key("b")]))
        keys = [timer_key(name) for name in "abc"]

        unset = await store.unset_timers(owner.partition, keys)

        assert list(unset) == [timer_key("b"), timer_key("c")]
        assert list(await store.unset_timers(owner.partition, [])) == []


async def due(owner: Owner, now: float) -> list[str]:
    found = await owner.store.due_timers(owner.lease, now, limit=ALL)
    return [each.key.node_id for each in found]
