"""Shares partitions evenly among all live orchestrators: decides which partitions to own."""

import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil

from runnel.engine.failure_detector import FailureDetector
from runnel.engine.orchestrator import OrchestratorDependencies
from runnel.engine.orchestrator.orchestrator import LeaseObservation, LeaseWatcher, Orchestrator
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.store import Store
from runnel.ports.telemetry import Telemetry

# With a smaller difference, giving up a partition would only swap the two counts.
IMBALANCE_MAX = 1


def make_sharing_orchestrator(
    dependencies: OrchestratorDependencies, *, name: str, lease_s: float = 10.0
) -> Orchestrator:
    """Returns one of several orchestrators that share the partitions of a store.

    The `name` of each orchestrator must be unique.

    Another orchestrator takes a partition over at most `lease_s` after the last renewal by its
    owner.
    """
    lease_watcher = LeaseWatcher(dependencies.store, dependencies.clock, lease_s)
    share = FairShare(
        dependencies.store,
        dependencies.clock,
        dependencies.telemetry,
        lease_watcher,
        name=name,
        lease_s=lease_s,
    )
    return Orchestrator(
        dependencies,
        name=name,
        choose_partitions=share.choose_partitions,
        on_stop=share.unregister,
        lease_s=lease_s,
        lease_watcher=lease_watcher,
    )


class FairShare:
    """Chooses the partitions of one orchestrator, given the leases and heartbeats of all
    orchestrators.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        telemetry: Telemetry,
        lease_watcher: LeaseWatcher,
        *,
        name: str,
        lease_s: float,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._lease_watcher = lease_watcher
        self._name = name
        self._liveness: FailureDetector[str, int] = FailureDetector(clock, lease_s)
        self._given_up: set[int] = set()

    async def choose_partitions(self) -> Sequence[int]:
        """Sends this orchestrator's heartbeat and returns the partitions that it should own.

        The orchestrator calls this method at every poll.
        """
        alive = await self._list_alive()
        observations = {
            number: await self._lease_watcher.observe(number)
            for number in await self._store.partitions()
        }
        self._given_up -= {
            number
            for number, observation in observations.items()
            if observation.lease is not None and observation.lease.owner != self._name
        }
        chosen = choose_partitions(self._name, observations, alive, given_up=self._given_up)
        self._given_up -= set(chosen)
        self._given_up |= {
            number
            for number, observation in observations.items()
            if observation.lease is not None
            and observation.lease.owner == self._name
            and number not in chosen
        }
        return chosen

    async def unregister(self) -> None:
        """Removes this orchestrator from the list, so that the others take its partitions over at
        once.
        """
        await self._store.unregister_orchestrator(self._name)

    async def _list_alive(self) -> set[str]:
        records = await self._store.heartbeat_orchestrator(self._name)
        self._liveness.retain_only({record.owner for record in records})
        alive = {self._name}
        for record in records:
            if not self._liveness.is_dead(record.owner, record.counter):
                alive.add(record.owner)
            elif record.owner != self._name:
                self._telemetry.event(names.ORCHESTRATOR_DEAD, orchestrator=record.owner)
                await self._store.unregister_orchestrator(record.owner, counter=record.counter)
        return alive


def choose_partitions(
    owner: str,
    observations: Mapping[int, LeaseObservation],
    alive: Collection[str],
    *,
    given_up: Collection[int] = (),
) -> list[int]:
    """Returns the partitions that `owner` should own: its present ones, less one or plus some.

    The owner gives one partition up if another live orchestrator has at least two fewer. As a
    result, the counts of any two orchestrators finally differ by at most one. No orchestrator gets
    more than ceil(partitions / alive). Partitions in `given_up` are reserved for orchestrators that
    own fewer partitions. The owner takes one of these back only if no orchestrator has fewer, or if
    the lease of the partition stayed unchanged for too long.
    """
    counts = Counter(
        observation.lease.owner
        for number, observation in observations.items()
        if observation.lease is not None and number not in given_up
    )
    order = sorted(observations, key=lambda number: zlib.crc32(f"{number} {owner}".encode()))
    owned = [
        number
        for number in order
        if number not in given_up and _is_owned_by(owner, observations[number])
    ]
    if len(owned) - min(counts[name] for name in alive) > IMBALANCE_MAX:
        return owned[:-1]
    share = ceil(len(observations) / len(alive))
    is_for_others = any(counts[name] < len(owned) for name in alive)
    reserved = given_up if is_for_others else ()
    free = [
        number
        for number in order
        if number not in owned and _is_free(observations[number], is_given_up=number in reserved)
    ]
    return owned + free[: max(0, share - len(owned))]


def _is_owned_by(owner: str, observation: LeaseObservation) -> bool:
    return observation.lease is not None and observation.lease.owner == owner


def _is_free(observation: LeaseObservation, *, is_given_up: bool) -> bool:
    return observation.is_silent if is_given_up else observation.can_be_acquired
