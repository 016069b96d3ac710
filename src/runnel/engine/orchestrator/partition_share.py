"""Partitions shared evenly by all orchestrators that live: who takes which, who gives one up."""

import zlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import ceil

from runnel.engine.liveness import Liveness
from runnel.engine.orchestrator import Parts
from runnel.engine.orchestrator.orchestrator import LeaseWatch, Orchestrator, Sight
from runnel.ports import telemetry as names
from runnel.ports.clock import Clock
from runnel.ports.store import Store
from runnel.ports.telemetry import Telemetry

# With fewer than this between two of them, giving one up would only swap their places.
UNEVEN_MAX = 1


def sharing_orchestrator(parts: Parts, *, name: str, lease_s: float = 10.0) -> Orchestrator:
    """One of many that share the partitions of a store; `name` is nobody else's.

    What a dead one owned is taken over at most `lease_s` after its last sign of life.
    """
    watch = LeaseWatch(parts.store, parts.clock, lease_s)
    share = FairShare(parts.store, parts.clock, parts.telemetry, watch, name=name, lease_s=lease_s)
    return Orchestrator(
        parts, name=name, wanted=share.wanted, leave=share.leave, lease_s=lease_s, watch=watch
    )


class FairShare:
    """Tells an orchestrator what it should own, as of now, from what the store shows of all."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        telemetry: Telemetry,
        watch: LeaseWatch,
        *,
        name: str,
        lease_s: float,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._watch = watch
        self._name = name
        self._liveness: Liveness[str, int] = Liveness(clock, lease_s)
        self._given: set[int] = set()

    async def wanted(self) -> Sequence[int]:
        """Says that this orchestrator lives, too: call it at every look."""
        living = await self._living()
        seen = {number: await self._watch.look(number) for number in await self._store.partitions()}
        self._given -= {
            number
            for number, sight in seen.items()
            if sight.lease is not None and sight.lease.owner != self._name
        }
        wanted = choose(self._name, seen, living, given=self._given)
        self._given -= set(wanted)
        self._given |= {
            number
            for number, sight in seen.items()
            if sight.lease is not None and sight.lease.owner == self._name and number not in wanted
        }
        return wanted

    async def leave(self) -> None:
        """The others need not wait until this one is judged dead."""
        await self._store.depart(self._name)

    async def _living(self) -> set[str]:
        attending = await self._store.attend(self._name)
        self._liveness.forget_all_but({each.owner for each in attending})
        living = {self._name}
        for each in attending:
            if not self._liveness.is_dead(each.owner, each.counter):
                living.add(each.owner)
            elif each.owner != self._name:
                self._telemetry.event(names.ORCHESTRATOR_DEAD, orchestrator=each.owner)
                await self._store.depart(each.owner, counter=each.counter)
        return living


def choose(
    me: str, seen: Mapping[int, Sight], living: Collection[str], *, given: Collection[int] = ()
) -> list[int]:
    """The partitions that `me` should own: those it has, less one or plus some.

    One is given up when somebody has at least two fewer: so all end with the same number, or one
    more, and never more than ceil(partitions / living). What was `given` up is for those who have
    fewer: it is taken back only when there are none, or when they did not want it for a while.
    """
    counts = Counter(
        sight.lease.owner
        for number, sight in seen.items()
        if sight.lease is not None and number not in given
    )
    order = sorted(seen, key=lambda number: zlib.crc32(f"{number} {me}".encode()))
    mine = [number for number in order if number not in given and _is_of(me, seen[number])]
    if len(mine) - min(counts[name] for name in living) > UNEVEN_MAX:
        return mine[:-1]
    share = ceil(len(seen) / len(living))
    is_for_others = any(counts[name] < len(mine) for name in living)
    kept = given if is_for_others else ()
    free = [
        number
        for number in order
        if number not in mine and _is_free(seen[number], is_given=number in kept)
    ]
    return mine + free[: max(0, share - len(mine))]


def _is_of(owner: str, sight: Sight) -> bool:
    return sight.lease is not None and sight.lease.owner == owner


def _is_free(sight: Sight, *, is_given: bool) -> bool:
    return sight.is_still if is_given else sight.is_takeable
