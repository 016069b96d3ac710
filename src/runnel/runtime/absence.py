"""Whether anybody is there who decides and who works, as an onlooker can tell from the store."""

from collections.abc import Callable
from typing import TypeAlias

from runnel.core.ids import ExecutionId
from runnel.engine.liveness import Liveness
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.ports.registry import WorkerRecord
from runnel.ports.store import LeaseRecord
from runnel.settings import Settings

Say: TypeAlias = Callable[[str], None]

# Long enough for whoever is just being started.
MOMENT_S = 2.0
LOOK_EVERY_S = 1.0

NO_ORCHESTRATOR = "no orchestrator is alive: start one with 'runnel orchestrator'"
NO_WORKER = "no worker is alive: start one with 'runnel worker'"
NOT_SERVED = "no worker that is alive takes tasks of the queue"


class Absence:
    """Says once what is missing, after a moment; and again after it has been there meanwhile.

    `queues` are those that the execution may put tasks into.
    """

    def __init__(
        self, backend: Backend, clock: Clock, settings: Settings, *, queues: frozenset[str]
    ) -> None:
        self._queues = queues
        self._backend = backend
        self._clock = clock
        self._owners: Liveness[int, LeaseRecord] = Liveness(clock, settings.lease_s)
        self._dead_after_s = settings.heartbeat_timeout_s
        self._workers: Liveness[str, int] = Liveness(clock, self._dead_after_s)
        self._since = clock.monotonic()
        self._looked_at = float("-inf")
        self._said: frozenset[str] = frozenset()

    async def tell(self, execution_id: ExecutionId, say: Say) -> None:
        """To be called now and then while the execution does not move."""
        now = self._clock.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        missing = await self._missing(execution_id)
        if now - self._since < MOMENT_S:
            return
        for sentence in missing:
            if sentence not in self._said:
                say(sentence)
        self._said = frozenset(missing)

    async def _missing(self, execution_id: ExecutionId) -> list[str]:
        store = self._backend.store
        partition = await store.route(execution_id)
        record = await store.observe(partition)
        is_owned = record is not None and not self._owners.is_dead(partition, record)
        workers = await self._backend.tasks.workers()
        # Each one is looked at, so that each one's silence is counted.
        alive = [each for each in workers if not self._is_dead(each)]
        missing = [] if is_owned else [NO_ORCHESTRATOR]
        if not alive:
            return [*missing, NO_WORKER]
        waiting = [each.queue for each in await self._backend.tasks.queues() if each.depth]
        abouts = [each.about for each in alive if each.about is not None]
        unserved = [
            queue
            for queue in self._queues.intersection(waiting)
            if abouts and not any(about.serves(queue) for about in abouts)
        ]
        return [*missing, *(f"{NOT_SERVED} '{queue}'" for queue in sorted(unserved))]

    def _is_dead(self, record: WorkerRecord) -> bool:
        grace_s = record.grace_s(self._dead_after_s)
        return self._workers.is_dead(record.worker, record.counter, grace_s=grace_s)
