"""Concurrency keys end with their process, and so do their messages."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runnel.backends.sqlite.backend import SqliteBackend
from runnel.core.codec import encode_entry
from runnel.core.commands import AcquireLimit, Command, LimitGranted, ReleaseLimit
from runnel.core.events import LimitHeld, LimitReleased
from runnel.ports.store import Commit, HistoryRecord
from runnel.testing.clock import FakeClock, FakeIds
from runnel.testing.conformance.suite import LIMIT_ID, LeaseOwner, make_header, make_token

ACQUIRE = AcquireLimit(key="gpu", limit=1, holder=make_token("a"))
GRANT = LimitGranted(key="gpu", holder=make_token("a"))
RELEASE = ReleaseLimit(key="gpu", holder=make_token("a"))
HOME, OTHER = 0, 1


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[SqliteBackend]:
    backend = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds())
    await backend.claim_home_partition("one")
    yield backend
    await backend.close()


@pytest.fixture
async def home(backend: SqliteBackend) -> LeaseOwner:
    return await owner_of(backend, HOME)


@pytest.fixture
async def other(backend: SqliteBackend, home: LeaseOwner) -> LeaseOwner:
    """Owns the partition of the execution that requests the key."""
    other = await owner_of(backend, OTHER)
    await other.commit(Commit(sequence=0, headers=[make_header()]))
    return other


async def test_a_concurrency_key_and_its_requester_communicate_between_partitions(
    home: LeaseOwner, other: LeaseOwner
) -> None:
    await deliver(other, ACQUIRE)
    await deliver(home, GRANT)

    assert await home.read_commands() == [ACQUIRE]
    assert await other.read_commands() == [GRANT]


async def test_messages_of_concurrency_keys_end_with_their_process(
    backend: SqliteBackend, home: LeaseOwner, other: LeaseOwner, tmp_path: Path
) -> None:
    await deliver(other, ACQUIRE)
    await deliver(home, GRANT)
    await backend.close()

    successor = await SqliteBackend.open(tmp_path, clock=FakeClock(), ids=FakeIds("two"))
    commands = [
        await (await owner_of(successor, partition)).read_commands() for partition in (HOME, OTHER)
    ]
    await successor.close()

    assert commands == [[], []]


async def test_messages_to_a_concurrency_key_wait_for_the_next_owner_of_its_partition(
    backend: SqliteBackend, home: LeaseOwner, other: LeaseOwner
) -> None:
    await deliver(other, ACQUIRE)
    await backend.store.release(home.lease)
    await deliver(other, RELEASE)

    again = await owner_of(backend, HOME)

    assert await again.read_commands() == [ACQUIRE, RELEASE]


async def test_a_released_partition_releases_the_concurrency_keys_of_its_attempts(
    backend: SqliteBackend, home: LeaseOwner, other: LeaseOwner
) -> None:
    await deliver(other, ACQUIRE)

    await backend.store.release(other.lease)

    assert await home.read_commands() == [ACQUIRE, RELEASE]


async def test_concurrency_keys_are_released_once(
    backend: SqliteBackend, home: LeaseOwner, other: LeaseOwner
) -> None:
    await deliver(other, ACQUIRE, RELEASE)

    await backend.store.release(other.lease)

    assert await home.read_commands() == [ACQUIRE, RELEASE]


async def test_a_grant_that_was_released_meanwhile_is_not_delivered(
    backend: SqliteBackend, home: LeaseOwner, other: LeaseOwner
) -> None:
    """The partition is released and acquired again while its key is slow to answer."""
    await deliver(other, ACQUIRE)
    entries = await home.read()
    await backend.store.release(other.lease)
    again = await owner_of(backend, OTHER)
    await deliver(again, ACQUIRE)

    await home.commit(Commit(sequence=0, consumed=entries[-1].position, messages=[GRANT]))
    since = await home.read()
    entry = encode_entry(
        1.0, [LimitHeld(holder=make_token("a"), limit=1), LimitReleased(holder=make_token("a"))]
    )
    history = HistoryRecord(aggregate_id=LIMIT_ID, entry=entry)
    position = since[0].position
    await home.commit(Commit(sequence=0, consumed=position, histories=[history], messages=[GRANT]))

    assert [entry.command for entry in since] == [RELEASE, ACQUIRE]
    assert await again.read_commands() == []


async def owner_of(backend: SqliteBackend, partition: int) -> LeaseOwner:
    return LeaseOwner(backend.store, await backend.store.acquire(partition, "one"))


async def deliver(owner: LeaseOwner, *commands: Command) -> None:
    await owner.commit(Commit(sequence=0, messages=list(commands)))
