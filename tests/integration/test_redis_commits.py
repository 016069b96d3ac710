"""Each check of commit.lua refuses something that no other check refuses; large commits pass."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from runnel.app.private_servers.redis import RedisServer
from runnel.backends.redis import connection_pool as scripts
from runnel.backends.redis.backend import RedisBackend
from runnel.backends.redis.connection_pool import LuaScript
from runnel.backends.redis.options import RedisOptions
from runnel.engine.clock import RandomIdGenerator, RealClock
from runnel.errors import BrokenInvariantError, FencedError
from runnel.ports.archive import DeadLetterFilter
from runnel.ports.store import Commit, HistoryRecord, InboxPosition, Lease
from runnel.testing.conformance.suite import (
    ROOT_ID,
    make_dead_letter,
    make_message,
    make_task,
    make_timer,
    make_timer_key,
    make_token,
)
from tests.redis_server import flush_server

# A check of commit.lua, and a commit that only this check refuses.
CHECKS = {
    "epoch": "current[1] ~= epoch",
    "nonce": "current[2] ~= nonce",
    "sequence": "last + 1 ~= tonumber(sequence)",
}
MANY = 1_999


@pytest.fixture
async def backend(shared_redis: RedisServer) -> AsyncIterator[RedisBackend]:
    flush_server(shared_redis)
    opened = await RedisBackend.open(
        shared_redis.url, RedisOptions(partitions=1), clock=RealClock(), ids=RandomIdGenerator()
    )
    yield opened
    await opened.close()


def forged(check: str, lease: Lease) -> tuple[Lease, int]:
    """Returns a lease that fails this check and no other, and the sequence to commit with."""
    if check == "epoch":
        return msgspec.structs.replace(lease, epoch=lease.epoch + 1), 1
    if check == "nonce":
        # As on a server that was rolled back and whose partition was acquired again.
        return msgspec.structs.replace(lease, nonce=f"other{lease.nonce}"), 1
    return lease, 2


@pytest.mark.parametrize("check", CHECKS)
async def test_a_commit_that_fails_one_check_is_refused(backend: RedisBackend, check: str) -> None:
    lease, sequence = forged(check, await backend.store.acquire(0, "one"))

    with pytest.raises(FencedError):
        await backend.store.commit(lease, writes(sequence))

    assert list(await backend.store.load(ROOT_ID)) == []


@pytest.mark.parametrize("check", CHECKS)
async def test_without_a_check_its_commit_would_be_written(
    backend: RedisBackend, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scripts.SCRIPTS["commit"].text
    assert text.count(CHECKS[check]) == 1
    monkeypatch.setitem(scripts.SCRIPTS, "commit", changed(text.replace(CHECKS[check], "false")))
    lease, sequence = forged(check, await backend.store.acquire(0, "one"))

    await backend.store.commit(lease, writes(sequence))

    assert list(await backend.store.load(ROOT_ID)) == [b"x"]


async def test_a_commit_with_the_maximum_number_of_tasks_can_be_claimed_and_dropped(
    backend: RedisBackend,
) -> None:
    lease = await backend.store.acquire(0, "one")
    names = [f"t{number}" for number in range(MANY)]
    await backend.store.commit(lease, Commit(sequence=1, tasks=[make_task(name) for name in names]))
    claimed = await backend.tasks.claim("w", None, limit=MANY, wait_s=0)
    started = await backend.tasks.start("w", [task.token for task in claimed], now=1.0)

    await backend.store.commit(
        lease, Commit(sequence=2, dropped=[make_token(name) for name in names])
    )

    assert [task.token.node_id for task in claimed] == names
    assert all(started)
    orders = await backend.tasks.beat("w", [make_token(name) for name in names])
    assert len(orders.stop) == MANY
    assert await backend.pool.call("HLEN", backend.keys.task_locations) == 0


async def test_a_commit_with_the_maximum_number_of_timers_can_be_set_and_cleared(
    backend: RedisBackend,
) -> None:
    lease = await backend.store.acquire(0, "one")
    timers = [make_timer(f"t{number:04}", due=float(number)) for number in range(MANY)]
    await backend.store.commit(lease, Commit(sequence=1, timers_set=timers))
    due = await backend.store.due_timers(lease, float(MANY), limit=MANY)

    keys = [make_timer_key(f"t{number:04}") for number in range(MANY)]
    await backend.store.commit(lease, Commit(sequence=2, timers_cleared=keys))

    assert list(due) == timers
    assert await backend.store.next_due(lease) is None


async def test_a_former_lease_of_the_same_client_can_not_consume(backend: RedisBackend) -> None:
    await backend.mailbox.send([make_message("a")])
    former = await backend.store.acquire(0, "one")
    (entry,) = await backend.store.read_inbox(former, limit=9, wait_s=0)
    over = await backend.store.observe(0)
    await backend.store.acquire(0, "one", expected=over)

    with pytest.raises(FencedError):
        await backend.store.commit(former, Commit(sequence=1, consumed=entry.position))


async def test_a_position_that_was_never_read_can_not_be_consumed(backend: RedisBackend) -> None:
    lease = await backend.store.acquire(0, "one")

    with pytest.raises(BrokenInvariantError):
        await backend.store.commit(lease, Commit(sequence=1, consumed=InboxPosition("1-1")))


async def test_consumed_messages_leave_nothing_in_the_inbox(
    backend: RedisBackend,
) -> None:
    lease = await backend.store.acquire(0, "one")
    await backend.mailbox.send([make_message(str(number)) for number in range(300)])
    entries = await backend.store.read_inbox(lease, limit=300, wait_s=0)

    commit = Commit(sequence=1, consumed=entries[-1].position)
    await backend.store.commit(lease, commit)

    assert await backend.pool.call("XLEN", f"{backend.keys.inbox}0") == 0


def writes(sequence: int) -> Commit:
    return Commit(sequence=sequence, histories=[HistoryRecord(aggregate_id=ROOT_ID, entry=b"x")])


def changed(text: str) -> LuaScript:
    return scripts.make_script("commit", text)


async def test_a_dead_letter_has_the_fields_of_its_task_and_its_error(
    backend: RedisBackend,
) -> None:
    lease = await backend.store.acquire(0, "one")

    await backend.store.commit(lease, Commit(sequence=1, dead_letters=[make_dead_letter("a")]))

    [[_, fields]] = await backend.pool.call("XRANGE", f"{backend.keys.letters}default", "-", "+")
    stored = dict(zip(fields[::2], fields[1::2], strict=True))
    assert stored.pop(b"letter")
    assert stored == {
        b"execution_id": b"x1",
        b"node_id": b"a",
        b"item": b"-1",
        b"attempt": b"1",
        b"handler": b"h",
        b"config": b'{"big":12345678901234567890,"empty":[]}',
        b"reason": b"failed",
        b"original_message_id": b'["x1","a",-1,1,"n"]',
        b"error": b"ValueError: no",
        b"rejected_at": b"1.0",
    }


async def test_the_dead_letters_of_a_queue_are_limited_to_the_newest(
    backend: RedisBackend, shared_redis: RedisServer
) -> None:
    few = await RedisBackend.open(
        shared_redis.url, RedisOptions(letters_max=100), clock=RealClock(), ids=RandomIdGenerator()
    )
    lease = await few.store.acquire(0, "one")
    letters = [make_dead_letter(f"n{number}", rejected_at=float(number)) for number in range(1_000)]

    await few.store.commit(lease, Commit(sequence=1, dead_letters=letters))

    await few.close()
    kept = await backend.archive.list_dead_letters(DeadLetterFilter(limit=1_000))
    assert 100 <= len(kept) <= 200
    assert kept[0].token.node_id == "n999"


async def test_the_store_measures_how_long_the_oldest_inbox_entry_is_unread(
    backend: RedisBackend,
) -> None:
    key = f"{backend.keys.inbox}0"
    seconds, _ = await backend.pool.call("TIME")
    await backend.pool.call("XADD", key, f"{(int(seconds) - 100) * 1_000}-0", "m", b"old")
    await backend.pool.call("XADD", key, "*", "m", b"new")

    with_old = await backend.store.unread_s(0)
    await backend.pool.call("XTRIM", key, "MAXLEN", 1)
    with_new = await backend.store.unread_s(0)
    await backend.pool.call("XTRIM", key, "MAXLEN", 0)

    assert 100 <= with_old < 110
    assert 0 <= with_new < 10
    assert await backend.store.unread_s(0) == 0
