"""Orchestrators see each other: who attends is listed, until it departs or is found dead."""

from collections.abc import Sequence

from runnel.ports.registry import Attendance
from runnel.ports.store import Store
from runnel.testing.conformance.suite import Suite


class AttendanceRules(Suite):
    async def test_who_attends_is_listed_with_a_sign_that_changes(self, store: Store) -> None:
        first = signs(await store.attend("one"))
        await store.attend("two")

        second = signs(await store.attend("one"))

        assert list(first) == ["one"]
        assert sorted(second) == ["one", "two"]
        assert first["one"] != second["one"]

    async def test_who_departs_is_not_listed(self, store: Store) -> None:
        await store.attend("one")
        await store.attend("two")

        await store.depart("one")

        assert signs(await store.attend("two")).keys() == {"two"}

    async def test_who_was_judged_dead_is_not_listed(self, store: Store) -> None:
        judged = signs(await store.attend("dead"))["dead"]

        await store.depart("dead", counter=judged)

        assert signs(await store.attend("one")).keys() == {"one"}

    async def test_who_gave_a_sign_since_it_was_judged_stays(self, store: Store) -> None:
        judged = signs(await store.attend("alive"))["alive"]
        await store.attend("alive")

        await store.depart("alive", counter=judged)

        assert signs(await store.attend("one")).keys() == {"alive", "one"}

    async def test_who_comes_back_shows_no_sign_that_was_seen_before(self, store: Store) -> None:
        before = signs(await store.attend("one"))["one"]
        await store.depart("one")

        assert signs(await store.attend("one"))["one"] != before

    async def test_departing_twice_is_not_an_error(self, store: Store) -> None:
        await store.attend("one")

        for _ in range(2):
            await store.depart("one")

        assert signs(await store.attend("two")).keys() == {"two"}


def signs(attending: Sequence[Attendance]) -> dict[str, int]:
    return {each.owner: each.counter for each in attending}
