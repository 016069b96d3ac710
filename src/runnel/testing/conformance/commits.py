"""Rules for commits: atomic, within the limits, only by the current owner, and only once."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from runnel.core.states import ExecutionState
from runnel.errors import CommitTooLargeError, FencedError
from runnel.ports import Backend
from runnel.ports.store import Commit, HistoryRecord, InboxPosition, Store
from runnel.testing.conformance.suite import (
    LIMIT_ID,
    READ_LIMIT,
    ROOT_ID,
    ConformanceFixtures,
    LeaseOwner,
    hand_over,
    make_dead_letter,
    make_header,
    make_message,
    make_task,
    make_timer,
    make_timer_key,
    make_token,
    take_over,
)
from runnel.testing.harness import Harness

FAR_FUTURE = 1e12
# One commit for each kind of change. Each of these commits changes state that a reader can read.
COMMIT_PARTS: Mapping[str, Mapping[str, Any]] = {
    "histories": {"histories": [HistoryRecord(aggregate_id=ROOT_ID, entry=b"second")]},
    "headers": {"headers": [make_header(state=ExecutionState.COMPLETED)]},
    "closed": {"closed": [LIMIT_ID]},
    "tasks": {"tasks": [make_task("b")]},
    "dropped": {"dropped": [make_token("a")]},
    "timers_set": {"timers_set": [make_timer("b", due=5.0)]},
    "timers_cleared": {"timers_cleared": [make_timer_key("a")]},
    "messages": {"messages": [make_message("second")]},
    "dead_letters": {"dead_letters": [make_dead_letter("b")]},
    "consumed": {},
}
every_part = pytest.mark.parametrize("part", COMMIT_PARTS)


class CommitRules(ConformanceFixtures):
    @every_part
    async def test_a_refused_commit_writes_nothing(
        self, backend: Backend, owner: LeaseOwner, part: str
    ) -> None:
        position = await _store_one_of_each(backend, owner)
        commit = _build_commit(part, position, sequence=owner.sequence + 2)

        with pytest.raises(FencedError):
            await backend.store.commit(owner.lease, commit)

        assert await _read_state(backend, owner) == STATE_BEFORE

    @every_part
    async def test_a_commit_with_too_many_writes_writes_nothing(
        self, backend: Backend, owner: LeaseOwner, part: str
    ) -> None:
        position = await _store_one_of_each(backend, owner)
        fillers = [make_token(f"n{number}") for number in range(backend.store.limits.writes)]
        commit = _build_commit(part, position, sequence=owner.sequence + 1)
        dropped = [*commit.dropped, *fillers, make_token("one more")]
        large = msgspec.structs.replace(commit, dropped=dropped)

        with pytest.raises(CommitTooLargeError):
            await backend.store.commit(owner.lease, large)

        assert await _read_state(backend, owner) == STATE_BEFORE

    @every_part
    async def test_a_commit_writes_each_of_its_parts(
        self, backend: Backend, owner: LeaseOwner, part: str
    ) -> None:
        position = await _store_one_of_each(backend, owner)

        await owner.commit(_build_commit(part, position, sequence=0))

        assert await _read_state(backend, owner) == STATE_BEFORE | CHANGES_BY_PART[part]

    async def test_a_commit_with_too_many_bytes_writes_nothing(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        entry = b"x" * (store.limits.size_bytes + 1)

        with pytest.raises(CommitTooLargeError):
            await owner.commit(
                Commit(sequence=0, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=entry)])
            )

        assert list(await store.load(ROOT_ID)) == []

    async def test_a_commit_that_is_too_large_does_not_use_a_sequence_number(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        entry = b"x" * (store.limits.size_bytes + 1)
        with pytest.raises(CommitTooLargeError):
            await owner.commit(
                Commit(sequence=0, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=entry)])
            )

        await owner.commit(Commit(sequence=0, headers=[make_header()]))

        assert list(await store.running(owner.partition)) == [ROOT_ID]

    async def test_a_commit_may_be_as_large_as_its_limits(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        histories = [HistoryRecord(aggregate_id=ROOT_ID, entry=b"x" * store.limits.size_bytes)]
        dropped = [make_token(f"n{number}") for number in range(store.limits.writes - 1)]

        await owner.commit(Commit(sequence=0, histories=histories, dropped=dropped))

        assert len(await store.load(ROOT_ID)) == 1

    async def test_many_histories_are_loaded_in_one_call(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        ids = [f"{ROOT_ID}.n{number}" for number in range(250)]
        histories = [
            HistoryRecord(aggregate_id=aggregate_id, entry=aggregate_id.encode())
            for aggregate_id in ids[::2]
        ]

        await owner.commit(Commit(sequence=0, histories=histories))

        loaded = [list(entries) for entries in await store.load_many(ids)]
        assert loaded[::2] == [[aggregate_id.encode()] for aggregate_id in ids[::2]]
        assert not any(loaded[1::2])
        assert list(await store.load_many([])) == []

    async def test_history_is_loaded_in_the_order_it_was_committed(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        entries = [f"entry {number}".encode() for number in range(12)]

        for entry in entries:
            await owner.commit(
                Commit(sequence=0, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=entry)])
            )

        assert list(await store.load(ROOT_ID)) == entries

    async def test_two_entries_of_one_commit_keep_their_order(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        entries = [b"b", b"a", b"c"]
        histories = [HistoryRecord(aggregate_id=ROOT_ID, entry=entry) for entry in entries]

        await owner.commit(Commit(sequence=0, histories=histories))

        assert list(await store.load(ROOT_ID)) == entries

    async def test_history_is_kept_byte_for_byte(self, store: Store, owner: LeaseOwner) -> None:
        entry = '[1,2.0,[{"empty":[],"big":12345678901234567890,"text":"ü\\u0000"}]]'.encode()

        await owner.commit(
            Commit(sequence=0, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=entry)])
        )

        assert list(await store.load(ROOT_ID)) == [entry]

    async def test_an_unknown_aggregate_has_no_history(self, store: Store) -> None:
        assert list(await store.load("unknown")) == []

    async def test_an_empty_commit_uses_a_sequence_number(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await owner.commit(Commit(sequence=0))

        assert (await hand_over(owner)).lease.sequence == 1


STATE_BEFORE: dict[str, Any] = {
    "history": [b"first"],
    "limit": [b"held"],
    "keys": ["gpu"],
    "header": ExecutionState.RUNNING,
    "timers": ["a"],
    "letters": [],
    "unread": [],
    "unconsumed": [make_message("first")],
    "tasks": ["a"],
}
CHANGES_BY_PART: dict[str, dict[str, Any]] = {
    "histories": {"history": [b"first", b"second"]},
    "headers": {"header": ExecutionState.COMPLETED},
    "closed": {"limit": [], "keys": []},
    "tasks": {"tasks": ["a", "b"]},
    "dropped": {"tasks": []},
    "timers_set": {"timers": ["a", "b"]},
    "timers_cleared": {"timers": []},
    "messages": {
        "unread": [make_message("second")],
        "unconsumed": [make_message("first"), make_message("second")],
    },
    "dead_letters": {"letters": ["b"]},
    "consumed": {"unconsumed": []},
}


async def _store_one_of_each(backend: Backend, owner: LeaseOwner) -> InboxPosition:
    """Stores one item of each kind in the backend; returns the position of an
    unconsumed message.
    """
    await owner.commit(
        Commit(
            sequence=0,
            histories=[
                HistoryRecord(aggregate_id=ROOT_ID, entry=b"first"),
                HistoryRecord(aggregate_id=LIMIT_ID, entry=b"held"),
            ],
            headers=[make_header()],
            tasks=[make_task("a")],
            timers_set=[make_timer("a", due=1.0)],
        )
    )
    await backend.mailbox.send([make_message("first")])
    (entry,) = await owner.read()
    return entry.position


def _build_commit(part: str, position: InboxPosition, *, sequence: int) -> Commit:
    consumed = position if part == "consumed" else None
    return Commit(sequence=sequence, consumed=consumed, **COMMIT_PARTS[part])


async def _read_state(backend: Backend, owner: LeaseOwner) -> dict[str, Any]:
    """Returns all visible state, and the unconsumed messages that the next owner reads."""
    store = backend.store
    header = await backend.archive.get_header(ROOT_ID)
    timers = await store.due_timers(owner.lease, FAR_FUTURE, limit=READ_LIMIT)
    tasks = await backend.tasks.claim("w", None, limit=READ_LIMIT, wait_s=0)
    visible = {
        "history": list(await store.load(ROOT_ID)),
        "limit": list(await store.load(LIMIT_ID)),
        "keys": list(await store.list_concurrency_keys(await store.route(LIMIT_ID))),
        "header": None if header is None else header.state,
        "timers": [timer.key.node_id for timer in timers],
        "letters": [letter.token.node_id for letter in await backend.archive.list_dead_letters()],
        "unread": await owner.read_commands(),
        "tasks": [task.token.node_id for task in tasks],
    }
    return visible | {"unconsumed": await (await hand_over(owner)).read_commands()}


# -- only the current owner can write, and each of its commits is written once ------------------


class FencingRules(ConformanceFixtures):
    async def test_a_commit_of_a_former_owner_is_refused(
        self, harness: Harness, store: Store, owner: LeaseOwner
    ) -> None:
        current = await take_over(harness, owner)

        with pytest.raises(FencedError):
            await owner.commit(make_history_commit(b"former"))
        await current.commit(make_history_commit(b"current"))

        assert list(await store.load(ROOT_ID)) == [b"current"]

    async def test_a_commit_of_an_owner_that_released_is_refused(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await store.release(owner.lease)

        with pytest.raises(FencedError):
            await owner.commit(make_history_commit(b"late"))

        assert list(await store.load(ROOT_ID)) == []

    async def test_a_commit_with_another_epoch_is_refused(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        for epoch in (owner.lease.epoch - 1, owner.lease.epoch + 1):
            other = msgspec.structs.replace(owner.lease, epoch=epoch)

            with pytest.raises(FencedError):
                await LeaseOwner(store, other).commit(make_history_commit(b"x"))

        assert list(await store.load(ROOT_ID)) == []

    async def test_a_commit_with_another_nonce_is_refused(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        other = msgspec.structs.replace(owner.lease, nonce="another")

        with pytest.raises(FencedError):
            await LeaseOwner(store, other).commit(make_history_commit(b"x"))

        assert list(await store.load(ROOT_ID)) == []

    async def test_the_same_commit_twice_is_refused_the_second_time(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        await owner.commit(make_history_commit(b"x"))

        with pytest.raises(FencedError):
            await store.commit(owner.lease, make_history_commit(b"x", sequence=owner.sequence))

        assert list(await store.load(ROOT_ID)) == [b"x"]

    async def test_a_commit_that_skips_a_sequence_number_is_refused(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        with pytest.raises(FencedError):
            await store.commit(owner.lease, make_history_commit(b"x", sequence=owner.sequence + 2))

        assert list(await store.load(ROOT_ID)) == []

    async def test_a_valid_commit_is_accepted_after_a_refused_one(
        self, store: Store, owner: LeaseOwner
    ) -> None:
        with pytest.raises(FencedError):
            await store.commit(owner.lease, make_history_commit(b"bad", sequence=99))

        await owner.commit(make_history_commit(b"good"))

        assert list(await store.load(ROOT_ID)) == [b"good"]

    async def test_a_new_owner_continues_at_the_sequence_of_the_former_owner(
        self, owner: LeaseOwner
    ) -> None:
        await owner.commit(make_history_commit(b"a"))
        await owner.commit(make_history_commit(b"b"))

        current = await hand_over(owner)

        assert current.lease.sequence == owner.lease.sequence + 2


def make_history_commit(entry: bytes, *, sequence: int = 0) -> Commit:
    return Commit(sequence=sequence, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=entry)])
