"""Workers as people see them, and how one is told to end."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from heapq import nsmallest
from typing import cast

import msgspec

from runnel.core.commands import limit_id
from runnel.core.concurrency_key import Limit, replay_limit
from runnel.core.ids import NO_ITEM, Token
from runnel.core.values import Json
from runnel.core.wording import printable
from runnel.engine.liveness import Liveness
from runnel.errors import NotFoundError, PartitionUnavailableError, StoreError, WrongStateError
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import LeaseRecord, Store, TaskQueue
from runnel.ports.workers import QueueRecord, RunningTask, WorkerAbout, WorkerRecord
from runnel.settings.model import Settings
from runnel.telemetry.metrics import NAMES_MAX, OTHER, Family, gauge
from runnel.views.execution import moment


def state_of(record: WorkerRecord, settings: Settings) -> str:
    """`silent`: not dead yet, but its beats are overdue."""
    timeout_s = settings.heartbeat_timeout_s
    is_silent = not record.is_dead and record.silent_s > max(timeout_s, record.grace_s(timeout_s))
    return "silent" if is_silent else str(record.state)


async def list_workers(tasks: TaskQueue) -> list[WorkerRecord]:
    """The living first, by name, then those that were found dead lately."""
    found = await tasks.workers(with_dead=True)
    return sorted(found, key=lambda each: (each.is_dead, each.worker))


async def find_worker(tasks: TaskQueue, name: str) -> WorkerRecord:
    """Raises NotFoundError."""
    for record in await tasks.workers(with_dead=True):
        if record.worker == name:
            return record
    raise _no_worker(name)


async def drain_worker(tasks: TaskQueue, name: str) -> None:
    """It takes no further task, finishes what it runs, and its process ends.

    Raises NotFoundError, and WrongStateError for one that is dead.
    """
    record = await find_worker(tasks, name)
    if record.is_dead:
        raise WrongStateError(f"worker {name} is dead already, it can't be drained any more")
    if not await tasks.drain(name):
        raise _no_worker(name)


def worker_document(record: WorkerRecord, settings: Settings) -> dict[str, Json]:
    """What is not known of it is null: it has not beaten yet, or is of an earlier version."""
    about = record.about
    said = about or WorkerAbout()
    return {
        "worker": record.worker,
        "state": state_of(record, settings),
        "holds": record.holds,
        "silent_s": record.silent_s,
        "host": about and about.host,
        "pid": about and about.pid,
        "queues": None if said.queues is None else list(said.queues),
        "handlers": list(said.handlers),
        "concurrency": about and about.concurrency,
        "beat_s": said.beat_s or None,
        "started_at": moment(about.started_at) if about else None,
        "version": about and about.version,
        "claimed_at": moment(said.claimed_at) if said.claimed_at else None,
        "tasks": [_task_document(each) for each in said.tasks],
    }


def _task_document(task: RunningTask) -> dict[str, Json]:
    document = cast("dict[str, Json]", msgspec.to_builtins(task))
    document["item"] = None if task.item == NO_ITEM else task.item
    document["started_at"] = moment(task.started_at)
    return document


def _no_worker(name: str) -> NotFoundError:
    return NotFoundError(
        "worker", printable(name), hint="'runnel workers' shows those that are there"
    )


# Queues as people see them: what waits, since when, who takes it, and what is wrong with that.

INBOX = "inbox"
_KEY = "tasks:"


class QueueLine(msgspec.Struct, frozen=True, kw_only=True):
    """`problem` is what a person should look at; empty when there is nothing."""

    queue: str
    waiting: int
    oldest_s: float
    workers: int
    problem: str


def queue_name(key: str) -> str:
    """As people name it, in workflows and with --queues."""
    return key.removeprefix(_KEY)


def queue_key(name: str | None) -> str | None:
    """As stores have it: commands that could not be decided are in the queue `inbox`."""
    if name is None or name == INBOX:
        return name
    return f"{_KEY}{queue_name(name)}"


def lines_of(
    records: Sequence[QueueRecord], workers: Sequence[WorkerRecord], settings: Settings
) -> list[QueueLine]:
    alive = [each.about for each in workers if state_of(each, settings) == "alive" and each.about]
    lines = []
    for record in records:
        name = queue_name(record.queue)
        serving = sum(about.serves(record.queue) for about in alive)
        problem = _problem(record, name, settings, serving=serving, alive=len(alive))
        lines.append(
            QueueLine(
                queue=name,
                waiting=record.depth,
                oldest_s=record.waits_s,
                workers=serving,
                problem=problem,
            )
        )
    return lines


def _problem(
    record: QueueRecord, name: str, settings: Settings, *, serving: int, alive: int
) -> str:
    if record.depth and not alive:
        return "they wait until a worker is there"
    if record.depth and not serving:
        return f"no worker takes them: they fail after {settings.unserved_s:g} s"
    stale_s = settings.stale_s.get(name)
    if record.depth and stale_s is not None and record.waits_s > stale_s:
        return f"the oldest waits for more than {stale_s:g} s: more workers, or a larger timeout"
    return ""


# Partitions: who owns each one, and what lies there that has not been dealt with.


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


# Concurrency keys: who holds each one, and who waits for it.

SHOWN_MAX = 100


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt; `limit` is how many may hold the key at once, as its node says."""

    execution_id: str
    node_id: str
    item: int | None
    attempt: int
    limit: int


class LimitView(msgspec.Struct, frozen=True, kw_only=True):
    """`holders` and `waiters` are the first hundred, those next in line first."""

    key: str
    holding: int
    waiting: int
    holders: Sequence[Holder]
    waiters: Sequence[Holder]


async def list_limits(store: Store, *, after: str = "", limit: int = 50) -> list[LimitView]:
    """Those that somebody holds or waits for, by key; `after` is the last key of a page."""
    found: list[LimitView] = []
    while len(found) < limit:
        keys = await _next_keys(store, after, limit)
        histories = await store.load_many([limit_id(key) for key in keys])
        views = [
            _view(replay_limit(key, entries)) for key, entries in zip(keys, histories, strict=True)
        ]
        found += [view for view in views if view.holding or view.waiting]
        if len(keys) < limit:
            break
        after = keys[-1]
    return found[:limit]


async def _next_keys(store: Store, after: str, limit: int) -> list[str]:
    partitions = await store.partitions()
    keys = {key for each in partitions for key in await store.keys_of(each) if key > after}
    return nsmallest(limit, keys)


def _view(limit: Limit) -> LimitView:
    return LimitView(
        key=limit.key,
        holding=len(limit.holders),
        waiting=len(limit.waiters),
        holders=[_holder(*each) for each in list(limit.holders.items())[:SHOWN_MAX]],
        waiters=[_holder(*each) for each in list(limit.waiters.items())[:SHOWN_MAX]],
    )


def _holder(token: Token, limit: int) -> Holder:
    return Holder(
        execution_id=token.execution_id,
        node_id=token.node_id,
        item=None if token.item == NO_ITEM else token.item,
        attempt=token.attempt,
        limit=limit,
    )


# Numbers that are read from the store when somebody asks for metrics, not counted on the way.

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
