"""Only the current owner writes, and each of its commits once."""

import msgspec
import pytest

from runnel.errors import FencedError
from runnel.ports.store import Commit, History, Store
from runnel.testing.conformance.suite import Owner, Suite, hand_over, take_over
from runnel.testing.conformance.values import ROOT
from runnel.testing.harness import Harness


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
