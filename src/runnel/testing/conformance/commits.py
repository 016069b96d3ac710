"""A commit is written whole or not at all, and has bounds."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from runnel.core.states import ExecutionState
from runnel.errors import CommitTooLargeError, FencedError
from runnel.ports import Backend
from runnel.ports.store import Commit, History, Position, Store
from runnel.testing.conformance.suite import (
    ALL,
    LIMIT,
    ROOT,
    Owner,
    Suite,
    hand_over,
    header,
    letter,
    message,
    take_over,
    task,
    timer,
    timer_key,
    token,
)
from runnel.testing.harness import Harness

FOR_EVER = 1e12
# Each part of a commit, so made that it changes something a reader can see.
PARTS: Mapping[str, Mapping[str, Any]] = {
    "histories": {"histories": [History(aggregate_id=ROOT, entry=b"second")]},
    "headers": {"headers": [header(state=ExecutionState.COMPLETED)]},
    "closed": {"closed": [LIMIT]},
    "tasks": {"tasks": [task("b")]},
    "dropped": {"dropped": [token("a")]},
    "timers_set": {"timers_set": [timer("b", due=5.0)]},
    "timers_cleared": {"timers_cleared": [timer_key("a")]},
    "messages": {"messages": [message("second")]},
    "dead_letters": {"dead_letters": [letter("b")]},
    "consumed": {},
}
every_part = pytest.mark.parametrize("part", PARTS)


class CommitRules(Suite):
    @every_part
    async def test_a_refused_commit_writes_nothing(
        self, backend: Backend, owner: Owner, part: str
    ) -> None:
        position = await _prepare(backend, owner)
        commit = _commit(part, position, sequence=owner.sequence + 2)

        with pytest.raises(FencedError):
            await backend.store.commit(owner.lease, commit)

        assert await _seen(backend, owner) == BEFORE

    @every_part
    async def test_a_commit_with_too_many_writes_writes_nothing(
        self, backend: Backend, owner: Owner, part: str
    ) -> None:
        position = await _prepare(backend, owner)
        fillers = [token(f"n{number}") for number in range(backend.store.limits.writes)]
        commit = _commit(part, position, sequence=owner.sequence + 1)
        dropped = [*commit.dropped, *fillers, token("one more")]
        large = msgspec.structs.replace(commit, dropped=dropped)

        with pytest.raises(CommitTooLargeError):
            await backend.store.commit(owner.lease, large)

        assert await _seen(backend, owner) == BEFORE

    @every_part
    async def test_a_commit_writes_each_of_its_parts(
        self, backend: Backend, owner: Owner, part: str
    ) -> None:
        position = await _prepare(backend, owner)

        await owner.commit(_commit(part, position, sequence=0))

        assert await _seen(backend, owner) == BEFORE | AFTER[part]

    async def test_a_commit_with_too_many_bytes_writes_nothing(
        self, store: Store, owner: Owner
    ) -> None:
        entry = b"x" * (store.limits.size_bytes + 1)

        with pytest.raises(CommitTooLargeError):
            await owner.commit(
                Commit(sequence=0, histories=[History(aggregate_id=ROOT, entry=entry)])
            )

        assert list(await store.load(ROOT)) == []

    async def test_a_commit_that_was_too_large_does_not_use_up_its_sequence(
        self, store: Store, owner: Owner
    ) -> None:
        entry = b"x" * (store.limits.size_bytes + 1)
        with pytest.raises(CommitTooLargeError):
            await owner.commit(
                Commit(sequence=0, histories=[History(aggregate_id=ROOT, entry=entry)])
            )

        await owner.commit(Commit(sequence=0, headers=[header()]))

        assert list(await store.running(owner.partition)) == [ROOT]

    async def test_a_commit_may_be_as_large_as_its_bounds(self, store: Store, owner: Owner) -> None:
        histories = [History(aggregate_id=ROOT, entry=b"x" * store.limits.size_bytes)]
        dropped = [token(f"n{number}") for number in range(store.limits.writes - 1)]

        await owner.commit(Commit(sequence=0, histories=histories, dropped=dropped))

        assert len(await store.load(ROOT)) == 1

    async def test_many_histories_are_loaded_at_once(self, store: Store, owner: Owner) -> None:
        ids = [f"{ROOT}.n{number}" for number in range(250)]
        histories = [History(aggregate_id=each, entry=each.encode()) for each in ids[::2]]

        await owner.commit(Commit(sequence=0, histories=histories))

        found = [list(entries) for entries in await store.load_many(ids)]
        assert found[::2] == [[each.encode()] for each in ids[::2]]
        assert not any(found[1::2])
        assert list(await store.load_many([])) == []

    async def test_history_is_loaded_in_the_order_it_was_committed(
        self, store: Store, owner: Owner
    ) -> None:
        entries = [f"entry {number}".encode() for number in range(12)]

        for entry in entries:
            await owner.commit(
                Commit(sequence=0, histories=[History(aggregate_id=ROOT, entry=entry)])
            )

        assert list(await store.load(ROOT)) == entries

    async def test_two_entries_of_one_commit_keep_their_order(
        self, store: Store, owner: Owner
    ) -> None:
        entries = [b"b", b"a", b"c"]
        histories = [History(aggregate_id=ROOT, entry=entry) for entry in entries]

        await owner.commit(Commit(sequence=0, histories=histories))

        assert list(await store.load(ROOT)) == entries

    async def test_history_is_kept_byte_for_byte(self, store: Store, owner: Owner) -> None:
        entry = '[1,2.0,[{"empty":[],"big":12345678901234567890,"text":"ü\\u0000"}]]'.encode()

        await owner.commit(Commit(sequence=0, histories=[History(aggregate_id=ROOT, entry=entry)]))

        assert list(await store.load(ROOT)) == [entry]

    async def test_an_unknown_aggregate_has_no_history(self, store: Store) -> None:
        assert list(await store.load("nobody")) == []

    async def test_a_commit_of_nothing_takes_a_sequence(self, store: Store, owner: Owner) -> None:
        await owner.commit(Commit(sequence=0))

        assert (await hand_over(owner)).lease.sequence == 1


BEFORE: dict[str, Any] = {
    "history": [b"first"],
    "limit": [b"held"],
    "keys": ["gpu"],
    "header": ExecutionState.RUNNING,
    "timers": ["a"],
    "letters": [],
    "unread": [],
    "unconsumed": [message("first")],
    "tasks": ["a"],
}
AFTER: dict[str, dict[str, Any]] = {
    "histories": {"history": [b"first", b"second"]},
    "headers": {"header": ExecutionState.COMPLETED},
    "closed": {"limit": [], "keys": []},
    "tasks": {"tasks": ["a", "b"]},
    "dropped": {"tasks": []},
    "timers_set": {"timers": ["a", "b"]},
    "timers_cleared": {"timers": []},
    "messages": {
        "unread": [message("second")],
        "unconsumed": [message("first"), message("second")],
    },
    "dead_letters": {"letters": ["b"]},
    "consumed": {"unconsumed": []},
}


async def _prepare(backend: Backend, owner: Owner) -> Position:
    """Something of each kind is there; returns the position of a message read, not consumed."""
    await owner.commit(
        Commit(
            sequence=0,
            histories=[
                History(aggregate_id=ROOT, entry=b"first"),
                History(aggregate_id=LIMIT, entry=b"held"),
            ],
            headers=[header()],
            tasks=[task("a")],
            timers_set=[timer("a", due=1.0)],
        )
    )
    await backend.mailbox.send([message("first")])
    (entry,) = await owner.read()
    return entry.position


def _commit(part: str, position: Position, *, sequence: int) -> Commit:
    consumed = position if part == "consumed" else None
    return Commit(sequence=sequence, consumed=consumed, **PARTS[part])


async def _seen(backend: Backend, owner: Owner) -> dict[str, Any]:
    """All that can be read, then, by the next owner, what was not consumed."""
    store = backend.store
    found = await backend.archive.get_header(ROOT)
    timers = await store.due_timers(owner.lease, FOR_EVER, limit=ALL)
    tasks = await backend.tasks.claim("w", None, limit=ALL, wait_s=0)
    seen = {
        "history": list(await store.load(ROOT)),
        "limit": list(await store.load(LIMIT)),
        "keys": list(await store.keys_of(await store.route(LIMIT))),
        "header": None if found is None else found.state,
        "timers": [each.key.node_id for each in timers],
        "letters": [each.token.node_id for each in await backend.archive.list_dead_letters()],
        "unread": await owner.commands(),
        "tasks": [each.token.node_id for each in tasks],
    }
    return seen | {"unconsumed": await (await hand_over(owner)).commands()}


# Only the current owner writes, and each of its commits once.


class FencingRules(Suite):
    async def test_a_commit_of_a_former_owner_is_refused(
        self, harness: Harness, store: Store, owner: Owner
    ) -> None:
        current = await take_over(harness, owner)

        with pytest.raises(FencedError):
            await owner.commit(writes(b"former"))
        await current.commit(writes(b"current"))

        assert list(await store.load(ROOT)) == [b"current"]

    async def test_a_commit_of_an_owner_that_released_is_refused(
        self, store: Store, owner: Owner
    ) -> None:
        await store.release(owner.lease)

        with pytest.raises(FencedError):
            await owner.commit(writes(b"late"))

        assert list(await store.load(ROOT)) == []

    async def test_a_commit_with_another_epoch_is_refused(self, store: Store, owner: Owner) -> None:
        for epoch in (owner.lease.epoch - 1, owner.lease.epoch + 1):
            other = msgspec.structs.replace(owner.lease, epoch=epoch)

            with pytest.raises(FencedError):
                await Owner(store, other).commit(writes(b"x"))

        assert list(await store.load(ROOT)) == []

    async def test_a_commit_with_another_nonce_is_refused(self, store: Store, owner: Owner) -> None:
        other = msgspec.structs.replace(owner.lease, nonce="another")

        with pytest.raises(FencedError):
            await Owner(store, other).commit(writes(b"x"))

        assert list(await store.load(ROOT)) == []

    async def test_the_same_commit_twice_is_refused_the_second_time(
        self, store: Store, owner: Owner
    ) -> None:
        await owner.commit(writes(b"x"))

        with pytest.raises(FencedError):
            await store.commit(owner.lease, writes(b"x", sequence=owner.sequence))

        assert list(await store.load(ROOT)) == [b"x"]

    async def test_a_commit_that_leaves_a_sequence_out_is_refused(
        self, store: Store, owner: Owner
    ) -> None:
        with pytest.raises(FencedError):
            await store.commit(owner.lease, writes(b"x", sequence=owner.sequence + 2))

        assert list(await store.load(ROOT)) == []

    async def test_a_refused_commit_does_not_stop_the_next_good_one(
        self, store: Store, owner: Owner
    ) -> None:
        with pytest.raises(FencedError):
            await store.commit(owner.lease, writes(b"bad", sequence=99))

        await owner.commit(writes(b"good"))

        assert list(await store.load(ROOT)) == [b"good"]

    async def test_a_new_owner_goes_on_at_the_sequence_of_the_former(self, owner: Owner) -> None:
        await owner.commit(writes(b"a"))
        await owner.commit(writes(b"b"))

        current = await hand_over(owner)

        assert current.lease.sequence == owner.lease.sequence + 2


def writes(entry: bytes, *, sequence: int = 0) -> Commit:
    return Commit(sequence=sequence, histories=[History(aggregate_id=ROOT, entry=entry)])
