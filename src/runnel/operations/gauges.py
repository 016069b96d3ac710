"""Numbers that are read from the store when somebody asks for metrics, not counted on the way."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from runnel.errors import StoreError
from runnel.operations.partitions import Partitions
from runnel.operations.queues import queue_name
from runnel.operations.workers import state_of
from runnel.ports.backend import Backend
from runnel.ports.clock import Clock
from runnel.settings import Settings
from runnel.telemetry.families import NAMES_MAX, OTHER, Family, gauge

# However many ask, and however often: the store is asked once in so many seconds.
KEPT_S = 5.0
# Whoever asks gives up after ten.
LOOK_S_MAX = 5.0

WORKER_STATES = ("alive", "draining", "silent", "dead")


class StoreGauges:
    """Every process shows the same of one store: take the largest, not the sum.

    A part that can't be reached is not up, and nothing is said about what it holds.
    """

    def __init__(
        self, backend: Backend, clock: Clock, settings: Settings, partitions: Partitions
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._settings = settings
        self._partitions = partitions
        self._looking = asyncio.Lock()
        self._looked_at: float | None = None
        self._found: dict[str, Sequence[Family]] = {}

    async def refresh(self) -> None:
        """Never raises for a store that is away."""
        async with self._looking:
            now = self._clock.monotonic()
            if self._looked_at is not None and now - self._looked_at < KEPT_S:
                return
            found = {
                "store": await self._asked(self._of_store),
                "archive": await self._asked(self._of_archive),
            }
            self._found = {part: families for part, families in found.items() if families}
            self._looked_at = self._clock.monotonic()

    def families(self) -> list[Family]:
        is_up = {part: float(part in self._found) for part in ("store", "archive")}
        known = {each.name: each for found in self._found.values() for each in found}
        known["runnel_store_up"] = _of("runnel_store_up", is_up)
        return [known.get(name) or gauge(name, *words) for name, words in ABOUT.items()]

    async def _asked(self, look: Callable[[], Awaitable[Sequence[Family]]]) -> Sequence[Family]:
        try:
            return await self._clock.within(LOOK_S_MAX, look())
        except (StoreError, TimeoutError):
            return ()

    async def _of_store(self) -> Sequence[Family]:
        tasks = self._backend.tasks
        queues = await tasks.queues()
        depths: Counter[str] = Counter()
        oldest: dict[str, float] = {}
        for number, record in enumerate(sorted(queues, key=lambda each: -each.depth)):
            name = queue_name(record.queue) if number < NAMES_MAX else OTHER
            depths[name] += record.depth
            oldest[name] = max(oldest.get(name, 0.0), record.waits_s if record.depth else 0.0)
        workers = await tasks.workers(with_dead=True)
        states = Counter(state_of(each, self._settings) for each in workers)
        held = sum(each.holds for each in workers)
        return [
            _of("runnel_queue_depth", depths),
            _of("runnel_queue_oldest_seconds", oldest),
            _of("runnel_workers", {each: states[each] for each in WORKER_STATES}),
            _one("runnel_tasks_held", held),
            *await self._of_partitions(),
        ]

    async def _of_partitions(self) -> Sequence[Family]:
        found = await self._partitions.look()
        owners = Counter(each.owner for each in found if each.owner and not each.is_silent)
        return [
            _of("runnel_partitions_owned", owners),
            _one("runnel_partitions_orphaned", len(found) - owners.total()),
            _one("runnel_inbox_unread_seconds", max((each.unread_s for each in found), default=0)),
            _one("runnel_commits_unarchived", sum(each.unarchived for each in found)),
        ]

    async def _of_archive(self) -> Sequence[Family]:
        return [_one("runnel_dead_letters", await self._backend.archive.count_dead_letters())]


ABOUT: Mapping[str, tuple[str, str | None]] = {
    "runnel_store_up": ("Whether this part of the store answered.", "part"),
    "runnel_queue_depth": ("Tasks that wait in a queue.", "queue"),
    "runnel_queue_oldest_seconds": ("How long the oldest task of a queue has waited.", "queue"),
    "runnel_workers": ("Workers by state; of the dead ones, the last hundred.", "state"),
    "runnel_tasks_held": ("Tasks that workers have claimed and not reported.", None),
    "runnel_partitions_owned": ("Partitions that an orchestrator decides for.", "owner"),
    "runnel_partitions_orphaned": ("Partitions without a living orchestrator.", None),
    "runnel_inbox_unread_seconds": (
        "How long the oldest message of all partitions is unread.",
        None,
    ),
    "runnel_commits_unarchived": ("Commits that the archive does not have yet.", None),
    "runnel_dead_letters": ("Dead letters that somebody has to look at.", None),
}
"""What each is, and by what it is told apart."""


def _of(name: str, values: Mapping[str, float]) -> Family:
    return gauge(name, *ABOUT[name], values)


def _one(name: str, value: float) -> Family:
    return _of(name, {"": value})
