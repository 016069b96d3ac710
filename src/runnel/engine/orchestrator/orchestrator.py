"""The orchestrator: acquires partitions, runs an owner for each, renews and releases the leases."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from runnel.engine.failure_detector import FailureDetector
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.aggregates import CachedExecutionsLimit
from runnel.engine.orchestrator.partition_owner import PartitionOwner
from runnel.engine.orchestrator.recovery import recover_partition
from runnel.errors import FencedError, LeaseHeldError, PartitionUnavailableError, StoreError
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.store import Lease, LeaseRecord, Store


class LeaseObservation(msgspec.Struct, frozen=True, kw_only=True):
    """The lease of a partition at one poll.

    `is_silent` means that the lease has not changed for too long.
    """

    lease: LeaseRecord | None = None
    is_silent: bool = False

    @property
    def can_be_acquired(self) -> bool:
        return self.lease is None or self.is_silent


class LeaseWatcher:
    """Detects dead owners of partitions.

    A caller that polls every `poll_s` detects a dead owner within `lease_s`.
    """

    def __init__(self, store: Store, clock: Clock, lease_s: float) -> None:
        self._store = store
        self._liveness: FailureDetector[int, LeaseRecord | None] = FailureDetector(clock, lease_s)
        self.poll_s = self._liveness.poll_s

    async def observe(self, partition: int) -> LeaseObservation:
        lease = await self._store.observe(partition)
        return LeaseObservation(lease=lease, is_silent=self._liveness.is_dead(partition, lease))


ChoosePartitions = Callable[[], Awaitable[Sequence[int]]]
OnStop = Callable[[], Awaitable[None]]


class Orchestrator:
    """Acquires and owns the partitions that `choose_partitions` returns at each poll.

    The orchestrator gives up partitions that are no longer chosen, one at a time, after the current
    commit. The orchestrator acquires a partition at most `lease_s` after the partition's owner has
    died. `on_stop` is called at shutdown, before the partitions are released. `recovered` is set
    once all partitions that the first successful poll acquired are recovered.
    """

    def __init__(
        self,
        dependencies: OrchestratorDependencies,
        *,
        name: str,
        choose_partitions: ChoosePartitions,
        on_stop: OnStop | None = None,
        lease_s: float = 10.0,
        lease_watcher: LeaseWatcher | None = None,
    ) -> None:
        self.recovered = asyncio.Event()
        self._dependencies = dependencies
        self._name = name
        self._choose_partitions = choose_partitions
        self._on_stop = on_stop
        self._lease_watcher = lease_watcher or LeaseWatcher(
            dependencies.store, dependencies.clock, lease_s
        )
        self._graphs = dependencies.graphs or GraphCache(dependencies.archive)
        self._cached = CachedExecutionsLimit(dependencies.cached_executions_max)
        self._owned: dict[int, Lease] = {}
        self._owners: dict[int, PartitionOwner] = {}
        self._recovering: set[int] = set()
        # Nonces of leases that are lost or being given up. Their owners read nothing more from the
        # inbox.
        self._leaving: set[str] = set()
        self._has_polled = False
        self._unreleased: list[Lease] = []

    def owns(self, partition: int) -> bool:
        return partition in self._owned

    def owners(self) -> Sequence[PartitionOwner]:
        """Returns the owners of the partitions that are owned and recovered."""
        return [
            owner
            for partition, owner in self._owners.items()
            if partition not in self._recovering and owner.lease.nonce not in self._leaving
        ]

    def leases(self) -> Sequence[Lease]:
        """Returns the leases of the owned partitions whose store was restored from the archive."""
        return [owner.lease for owner in self._owners.values()]

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until stopped; then processes the remaining inbox entries and releases every
        partition.
        """
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                try:
                    await self._tick(group, stop)
                    self._has_polled = True
                except StoreError as error:
                    self._dependencies.telemetry.event(names.STORE_FAILED, error=str(error))
                self._update_recovered()
                await self._dependencies.clock.wait(stop, self._lease_watcher.poll_s)
            self._halt_all()
            await self._run_on_stop()

    async def _tick(self, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
        unreleased, self._unreleased = self._unreleased, []
        for unreleased_lease in unreleased:
            await self._release(unreleased_lease)
        await self._renew()
        chosen = await self._choose_partitions()
        self._give_up_one(chosen)
        for partition in chosen:
            if partition not in self._owned:
                lease = await self._try_to_acquire(partition)
                if lease is not None:
                    self._owned[partition] = lease
                    self._recovering.add(partition)
                    group.create_task(self._run_owner(lease, stop))

    async def _renew(self) -> None:
        for partition, lease in list(self._owned.items()):
            try:
                await self._dependencies.store.renew(lease)
            except FencedError as error:
                self._owned.pop(partition, None)
                self._disown(lease, str(error))

    def _disown(self, lease: Lease, error: str) -> None:
        """Stops the owner of a lost lease.

        With Redis, reading the inbox does not check the lease, so the owner may not have noticed
        the loss.
        """
        owner = self._owners.get(lease.partition)
        if owner is not None and owner.lease.nonce == lease.nonce:
            self._report_lost(lease, error, is_fenced=True)
            self._give_up(owner)

    def _give_up_one(self, chosen: Sequence[int]) -> None:
        """Gives up one partition that is not chosen.

        Gives up the next partition only after this one is released.
        """
        owners = self._owners
        if any(owner.lease.nonce in self._leaving for owner in owners.values()):
            return
        for partition in sorted(owners.keys() - set(chosen)):
            self._give_up(owners[partition])
            return

    def _give_up(self, owner: PartitionOwner) -> None:
        self._leaving.add(owner.lease.nonce)
        owner.halt()

    async def _try_to_acquire(self, partition: int) -> Lease | None:
        """Acquires a partition that is free, or whose lease was not renewed in time.

        Returns None if another process holds the partition or if it is unavailable.

        An unavailable partition does not affect the others. A partition is unavailable, for
        example, if another user owns its lock file.
        """
        store = self._dependencies.store
        try:
            observation = await self._lease_watcher.observe(partition)
            if not observation.can_be_acquired:
                return None
            acquire = partial(store.acquire, partition, self._name, expected=observation.lease)
            lease = await self._acquire_and_renew(acquire)
        except LeaseHeldError:
            return None
        except PartitionUnavailableError as error:
            self._dependencies.telemetry.event(names.STORE_FAILED, error=str(error))
            return None
        if observation.lease is not None:
            self._dependencies.telemetry.event(
                names.PARTITION_TAKEN_OVER, partition=partition, former=observation.lease.owner
            )
        return lease

    async def _acquire_and_renew(self, acquire: Callable[[], Awaitable[Lease]]) -> Lease:
        """Calls `acquire`, which may take long, and renews the held leases meanwhile.

        An archive that does not respond can delay the acquisition of each partition by 10 s.
        Without renewals, the orchestrator would lose the leases that it already holds.
        """
        is_done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            acquiring = group.create_task(_capture_store_error(acquire))
            acquiring.add_done_callback(lambda _: is_done.set())
            while not await self._dependencies.clock.wait(is_done, self._lease_watcher.poll_s):
                try:
                    await self._renew()
                except StoreError as error:
                    self._dependencies.telemetry.event(names.STORE_FAILED, error=str(error))
        outcome = acquiring.result()
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def _run_owner(self, lease: Lease, stop: asyncio.Event) -> None:
        """Runs the owner of a partition.

        After any error, the orchestrator gives up the partition, and the next owner reloads it.
        """
        dependencies = self._dependencies
        owner: PartitionOwner | None = None
        try:
            restored = await dependencies.store.restore(lease)
            owner = PartitionOwner(dependencies, self._graphs, restored, self._cached)
            self._owners[lease.partition] = owner
            # Reported only after the restore, because a caller may wait for restored executions.
            dependencies.telemetry.event(
                names.PARTITION_ACQUIRED, partition=lease.partition, epoch=lease.epoch
            )
            await recover_partition(owner, dependencies.store, dependencies.telemetry)
            self._recovering.discard(lease.partition)
            self._update_recovered()
            if not stop.is_set():
                await owner.run()
            await self._drain(owner)
        except (FencedError, PartitionUnavailableError) as error:
            if lease.nonce not in self._leaving:
                is_fenced = isinstance(error, FencedError)
                self._report_lost(lease, str(error), is_fenced=is_fenced)
        except StoreError as error:
            self._report_lost(lease, str(error))
            if dependencies.store.has_shared_failures:
                self._halt_all()
        except Exception as error:  # noqa: BLE001 - a bug: one partition must not end the others
            self._report_lost(lease, "".join(traceback.format_exception(error)))
        finally:
            if self._owned.get(lease.partition) is lease:
                del self._owned[lease.partition]
            if owner is not None:
                owner.close()
                if self._owners.get(lease.partition) is owner:
                    del self._owners[lease.partition]
            self._recovering.discard(lease.partition)
            self._leaving.discard(lease.nonce)
            self._update_recovered()
            await self._release(lease)

    async def _drain(self, owner: PartitionOwner) -> None:
        """Processes the remaining inbox entries, unless another orchestrator waits for the
        partition.

        If another orchestrator waits, it reads the remaining entries as the next owner.
        """
        if owner.lease.nonce not in self._leaving:
            await owner.drain()

    async def _run_on_stop(self) -> None:
        if self._on_stop is None:
            return
        try:
            await self._on_stop()
        except StoreError as error:
            self._dependencies.telemetry.event(names.STORE_FAILED, error=str(error))

    def _halt_all(self) -> None:
        for owner in self._owners.values():
            owner.halt()

    async def _release(self, lease: Lease) -> None:
        """Releases the lease.

        The next poll repeats a failed release. No other process can acquire the partition before it
        is released.
        """
        try:
            await self._dependencies.store.release(lease)
        except StoreError as error:
            self._unreleased.append(lease)
            self._report_lost(lease, f"the lease could not be released: {error}")
            return
        self._dependencies.telemetry.event(names.PARTITION_RELEASED, partition=lease.partition)

    def _report_lost(self, lease: Lease, error: str, *, is_fenced: bool = False) -> None:
        self._dependencies.telemetry.event(
            names.PARTITION_LOST, partition=lease.partition, error=error, is_fenced=is_fenced
        )

    def _update_recovered(self) -> None:
        if self._has_polled and not self._recovering:
            self.recovered.set()


async def _capture_store_error(acquire: Callable[[], Awaitable[Lease]]) -> Lease | StoreError:
    try:
        return await acquire()
    except StoreError as error:
        return error
