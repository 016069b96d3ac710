"""Partitions shared evenly by all orchestrators that live: who takes which, who gives one up."""

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

# With fewer than this between two of them, giving one up would only swap their places.
IMBALANCE_MAX = 1


def make_sharing_orchestrator(
    dependencies: OrchestratorDependencies, *, name: str, lease_s: float = 10.0
) -> Orchestrator:
    """One of many that share the partitions of a store; `name` is nobody else's.

    What a dead one owned is taken over at most `lease_s` after its last sign of life.
    """
    watch = LeaseWatcher(dependencies.store, dependencies.clock, lease_s)
    share = FairShare(
        dependencies.store,
        dependencies.clock,
        dependencies.telemetry,
        watch,
        name=name,
        lease_s=lease_s,
    )
    return Orchestrator(
        dependencies,
        name=name,
        choose_partitions=share.choose_partitions,
        on_stop=share.unregister,
        lease_s=lease_s,
        lease_watcher=watch,
    )


class FairShare:
    """Tells an orchestrator what it should own, as of now, from what the store shows of all."""

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
        """Says that this orchestrator lives, too: call it at every look."""
        living = await self._list_alive()
        seen = {
            number: await self._lease_watcher.observe(number)
            for number in await self._store.partitions()
        }
        self._given_up -= {
            number
            for number, sight in seen.items()
            if sight.lease is not None and sight.lease.owner != self._name
        }
        chosen = choose_partitions(self._name, seen, living, given_up=self._given_up)
        self._given_up -= set(chosen)
        self._given_up |= {
            number
            for number, sight in seen.items()
            if sight.lease is not None and sight.lease.owner == self._name and number not in chosen
        }
        return chosen

    async def unregister(self) -> None:
        """The others need not wait until this one is judged dead."""
        await self._store.unregister_orchestrator(self._name)

    async def _list_alive(self) -> set[str]:
        attending = await self._store.heartbeat_orchestrator(self._name)
        self._liveness.retain_only({record.owner for record in attending})
        living = {self._name}
        for record in attending:
            if not self._liveness.is_dead(record.owner, record.counter):
                living.add(record.owner)
            elif record.owner != self._name:
                self._telemetry.event(names.ORCHESTRATOR_DEAD, orchestrator=record.owner)
                await self._store.unregister_orchestrator(record.owner, counter=record.counter)
        return living


def choose_partitions(
    owner: str,
    observations: Mapping[int, LeaseObservation],
    alive: Collection[str],
    *,
    given_up: Collection[int] = (),
) -> list[int]:
    """The partitions that `owner` should own: those it has, less one or plus some.

    One is given up when somebody has at least two fewer: so all end with the same number, or one
    more, and never more than ceil(partitions / living). What was `given_up` up is for those who
    have fewer: it is taken back only when there are none, or when they did not want it for a while.
    """
    counts = Counter(
        sight.lease.owner
        for number, sight in observations.items()
        if sight.lease is not None and number not in given_up
    )
    order = sorted(observations, key=lambda number: zlib.crc32(f"{number} {owner}".encode()))
    mine = [
        number
        for number in order
        if number not in given_up and _is_owned_by(owner, observations[number])
    ]
    if len(mine) - min(counts[name] for name in alive) > IMBALANCE_MAX:
        return mine[:-1]
    share = ceil(len(observations) / len(alive))
    is_for_others = any(counts[name] < len(mine) for name in alive)
    kept = given_up if is_for_others else ()
    free = [
        number
        for number in order
        if number not in mine and _is_free(observations[number], is_given_up=number in kept)
    ]
    return mine + free[: max(0, share - len(mine))]


def _is_owned_by(owner: str, observation: LeaseObservation) -> bool:
    return observation.lease is not None and observation.lease.owner == owner


def _is_free(observation: LeaseObservation, *, is_given_up: bool) -> bool:
    return observation.is_silent if is_given_up else observation.can_be_acquired
