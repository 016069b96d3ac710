"""Acquires partitions, runs an owner for each, renews their leases and gives them back."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence

from runnel.engine.liveness import Liveness
from runnel.engine.orchestrator.aggregates import Graphs
from runnel.engine.orchestrator.owner import Owner
from runnel.engine.orchestrator.parts import Parts
from runnel.engine.orchestrator.recovery import recover
from runnel.errors import FencedError, LeaseHeldError, PartitionUnavailableError, StoreError
from runnel.ports import telemetry as names
from runnel.ports.store import Lease, LeaseRecord

Wanted = Callable[[], Awaitable[Sequence[int]]]


class Orchestrator:
    """`wanted` names the partitions that this orchestrator should own, as of now.

    `recovered` is set once all that the first look acquired has been brought to life; a look that
    a StoreError ends does not count.
    """

    def __init__(self, parts: Parts, *, name: str, wanted: Wanted, lease_s: float = 10.0) -> None:
        self.recovered = asyncio.Event()
        self._parts = parts
        self._name = name
        self._wanted = wanted
        self._lease_s = lease_s
        self._graphs = Graphs(parts.archive)
        self._owned: dict[int, Lease] = {}
        self._owners: dict[int, Owner] = {}
        self._recovering: set[int] = set()
        self._has_looked = False
        self._unreleased: list[Lease] = []
        self._liveness: Liveness[int, LeaseRecord] = Liveness(parts.clock, lease_s)

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    async def run(self, stop: asyncio.Event) -> None:
        """Until stopped; then every partition is committed to its last entry and released."""
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                try:
                    await self._tick(group, stop)
                    self._has_looked = True
                except StoreError as error:
                    self._parts.telemetry.event(names.STORE_FAILED, error=str(error))
                self._tell_recovered()
                await self._parts.clock.wait(stop, self._lease_s / 3)
            self._halt_all()

    async def _tick(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        unreleased, self._unreleased = self._unreleased, []
        for given_up in unreleased:
            await self._release(given_up)
        await self._renew()
        for partition in await self._wanted():
            if partition not in self._owned:
                lease = await self._try_to_acquire(partition)
                if lease is not None:
                    self._owned[partition] = lease
                    self._recovering.add(partition)
                    group.create_task(self._own(lease, stop))

    async def _renew(self) -> None:
        for partition, lease in list(self._owned.items()):
            try:
                await self._parts.store.renew(lease)
            except FencedError:
                self._owned.pop(partition, None)

    async def _try_to_acquire(self, partition: int) -> Lease | None:
        """A free one at once; a held one when its counter has not moved for `lease_s`.

        One that can't be had (its lock file is another user's, say) does not keep the others away.
        """
        store = self._parts.store
        try:
            record = await store.observe(partition)
            if record is not None and not self._liveness.is_dead(partition, record):
                return None
            return await store.acquire(partition, self._name, over=record)
        except LeaseHeldError:
            return None
        except PartitionUnavailableError as error:
            self._parts.telemetry.event(names.STORE_FAILED, error=str(error))
            return None

    async def _own(self, lease: Lease, stop: asyncio.Event) -> None:
        """Gives the partition up on any error: whoever acquires it next loads what is stored."""
        parts = self._parts
        owner = Owner(parts, self._graphs, lease)
        parts.telemetry.event(
            names.PARTITION_ACQUIRED, partition=lease.partition, epoch=lease.epoch
        )
        self._owners[lease.partition] = owner
        try:
            await recover(owner, parts.store, parts.telemetry)
            self._recovering.discard(lease.partition)
            self._tell_recovered()
            if not stop.is_set():
                await owner.run()
            while await owner.tick(0):
                pass
        except FencedError as error:
            self._tell_lost(lease, str(error))
        except StoreError as error:
            # What this partition shares with the others here (concurrency keys) may be lost with
            # it: all of them begin anew, as after a restart of the process.
            self._tell_lost(lease, str(error))
            self._halt_all()
        except Exception as error:  # noqa: BLE001 - a bug: one partition must not end the others
            self._tell_lost(lease, "".join(traceback.format_exception(error)))
        finally:
            if self._owned.get(lease.partition) is lease:
                del self._owned[lease.partition]
            if self._owners.get(lease.partition) is owner:
                del self._owners[lease.partition]
            self._recovering.discard(lease.partition)
            self._tell_recovered()
            await self._release(lease)

    def _halt_all(self) -> None:
        for owner in self._owners.values():
            owner.halt()

    async def _release(self, lease: Lease) -> None:
        """A lease that can't be given back now is tried again, or nobody here could have it."""
        try:
            await self._parts.store.release(lease)
        except StoreError as error:
            self._unreleased.append(lease)
            self._tell_lost(lease, f"it could not be given back: {error}")
            return
        self._parts.telemetry.event(names.PARTITION_RELEASED, partition=lease.partition)

    def _tell_lost(self, lease: Lease, error: str) -> None:
        self._parts.telemetry.event(names.PARTITION_LOST, partition=lease.partition, error=error)

    def _tell_recovered(self) -> None:
        if self._has_looked and not self._recovering:
            self.recovered.set()
