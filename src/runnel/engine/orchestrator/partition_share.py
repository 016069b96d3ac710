"""Shares partitions evenly among all live orchestrators: decides which partitions to own.

Only orchestrators that are proven to be alive count when the partitions of a dead owner are shared.
Only they are given partitions by others. An orchestrator that dies after each start therefore
delays no partition that it does not own.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil

import msgspec

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
        self._clock = clock
        self._telemetry = telemetry
        self._lease_watcher = lease_watcher
        self._name = name
        self._lease_s = lease_s
        self._liveness: FailureDetector[str, int] = FailureDetector(clock, lease_s)
        self._heartbeats: dict[str, HeartbeatTrail] = {}
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
        chosen = choose_partitions(
            self._name,
            observations,
            alive,
            proven=self._list_proven(),
            given_up=self._given_up,
        )
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
        now = self._clock.monotonic()
        trails = self._heartbeats
        self._heartbeats = {}
        alive = {self._name}
        for record in records:
            if not self._liveness.is_dead(record.owner, record.counter):
                alive.add(record.owner)
                trail = trails.get(record.owner)
                self._heartbeats[record.owner] = HeartbeatTrail(
                    counter=record.counter,
                    seen_at=now if trail is None else trail.seen_at,
                    has_moved=trail is not None and trail.counter != record.counter,
                )
            elif record.owner != self._name:
                self._telemetry.event(names.ORCHESTRATOR_DEAD, orchestrator=record.owner)
                await self._store.unregister_orchestrator(record.owner, counter=record.counter)
        return alive

    def _list_proven(self) -> set[str]:
        """Returns the other orchestrators that are proven to be alive.

        Such an orchestrator has sent heartbeats for the length of a lease, and one since the last
        poll.
        """
        first_seen_max = self._clock.monotonic() - self._lease_s
        return {
            name
            for name, trail in self._heartbeats.items()
            if trail.has_moved and trail.seen_at <= first_seen_max and name != self._name
        }


class HeartbeatTrail(msgspec.Struct, frozen=True, kw_only=True):
    """The heartbeats of one orchestrator, as another orchestrator sees them.

    `seen_at` is the time of the first one. `has_moved` means that there was one since the previous
    poll.
    """

    counter: int
    seen_at: float
    has_moved: bool


def choose_partitions(
    owner: str,
    observations: Mapping[int, LeaseObservation],
    alive: Collection[str],
    *,
    proven: Collection[str],
    given_up: Collection[int] = (),
) -> list[int]:
    """Returns the partitions that `owner` should own: its present ones, less one or plus some.

    `alive` are all orchestrators that may live, and `proven` the others that certainly do.

    - The owner gives one partition up if a proven orchestrator has at least two fewer. As a result,
      the counts of any two orchestrators finally differ by at most one.
    - A partition that stayed silent for too long is shared among the owner and the proven ones.
    - A released partition is shared among all that may live. It becomes silent if none acquires it.
    - Partitions in `given_up` are reserved until they are silent or no proven orchestrator has
      fewer partitions.
    """
    counts = Counter(
        observation.lease.owner
        for observation in observations.values()
        if observation.lease is not None and not observation.is_silent
    )
    order = sorted(observations, key=lambda number: zlib.crc32(f"{number} {owner}".encode()))
    owned = [
        number
        for number in order
        if number not in given_up and _is_owned_by(owner, observations[number])
    ]
    count_min = min((counts[name] for name in proven), default=len(owned))
    if len(owned) - count_min > IMBALANCE_MAX:
        return owned[:-1]
    others = [number for number in order if number not in owned]
    silent = [number for number in others if observations[number].is_silent]
    chosen = _fill_up(owned, silent, share=ceil(len(observations) / (1 + len(proven))))
    reserved = given_up if count_min < len(owned) else ()
    released = [
        number
        for number in others
        if observations[number].lease is None and number not in {*chosen, *reserved}
    ]
    return _fill_up(chosen, released, share=ceil(len(observations) / len(alive)))


def _fill_up(owned: Sequence[int], free: Sequence[int], *, share: int) -> list[int]:
    return [*owned, *free[: max(0, share - len(owned))]]


def _is_owned_by(owner: str, observation: LeaseObservation) -> bool:
    return observation.lease is not None and observation.lease.owner == owner
