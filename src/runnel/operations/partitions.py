"""Partitions: who owns each one, and what lies there that has not been dealt with."""

import asyncio
from collections.abc import Sequence

import msgspec

from runnel.engine.liveness import Liveness
from runnel.errors import PartitionUnavailableError
from runnel.ports.clock import Clock
from runnel.ports.store import LeaseRecord, Store


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """`owner` is None when nobody has it; `is_silent` when its owner has not moved for a lease.

    `unread_s` is how long the oldest message has not been read, `unarchived` how many commits the
    archive does not have.
    """

    partition: int
    owner: str | None
    epoch: int | None
    is_silent: bool
    unread_s: float
    unarchived: int
    problem: str = ""


class Partitions:
    """Whether an owner lives is judged by what was seen before: a first look calls none silent."""

    def __init__(self, store: Store, clock: Clock, *, lease_s: float) -> None:
        self._store = store
        self._liveness: Liveness[int, tuple[str, int, int]] = Liveness(clock, lease_s)

    async def look(self) -> Sequence[PartitionView]:
        """All of them, by number; raises StoreError."""
        numbers = sorted(await self._store.partitions())
        self._liveness.forget_all_but(set(numbers))
        return await asyncio.gather(*[self._look_at(number) for number in numbers])

    async def _look_at(self, number: int) -> PartitionView:
        problem, lease = "", None
        try:
            lease = await self._store.observe(number)
        except PartitionUnavailableError as error:
            problem = str(error)
        return PartitionView(
            partition=number,
            owner=None if lease is None else lease.owner,
            epoch=None if lease is None else lease.epoch,
            is_silent=lease is not None and self._is_silent(lease),
            unread_s=await self._store.unread_s(number),
            unarchived=await self._store.unarchived(number),
            problem=problem,
        )

    def _is_silent(self, lease: LeaseRecord) -> bool:
        sign = (lease.owner, lease.epoch, lease.counter)
        return self._liveness.is_dead(lease.partition, sign)
