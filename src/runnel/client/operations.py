"""Reads workers, queues, partitions, concurrency keys and gauges from a store."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice

from runnel.core.commands import make_limit_id
from runnel.core.concurrency_key import ConcurrencyLimit, replay_limit
from runnel.core.ids import NO_ITEM, ExecutionId, TaskToken
from runnel.core.message_text import escape_unprintable
from runnel.engine.failure_detector import FailureDetector
from runnel.errors import NotFoundError, PartitionUnavailableError, StoreError, WrongStateError
from runnel.ports import Backend
from runnel.ports.clock import Clock
from runnel.ports.store import LeaseRecord, Store
from runnel.ports.workers import QueueRecord, RunningTaskInfo, WorkerInfo, WorkerRecord, WorkerState
from runnel.settings.model import Settings
from runnel.telemetry.metrics import LABEL_VALUES_MAX, OTHER_LABEL, MetricFamily, build_gauge
from runnel.views import Timestamp
from runnel.views.operations import (
    ConcurrencyKeyView,
    KeyHolder,
    PartitionView,
    QueueView,
    RunningTask,
    WorkerStatus,
    WorkerView,
)


def get_worker_state(record: WorkerRecord, settings: Settings) -> WorkerStatus:
    """Returns the state of a worker; `silent` means not dead yet, with an overdue heartbeat."""
    timeout_s = settings.heartbeat_timeout_s
    is_silent = not record.is_dead and record.silent_s > max(timeout_s, record.grace_s(timeout_s))
    if is_silent:
        return "silent"
    match record.state:
        case WorkerState.ALIVE:
            return "alive"
        case WorkerState.DRAINING:
            return "draining"
        case WorkerState.DEAD:
            return "dead"


def build_worker_view(record: WorkerRecord, settings: Settings) -> WorkerView:
    """Builds the view of a worker.

    A field is None if the worker has not sent a heartbeat yet, or runs an earlier version that does
    not report the field.
    """
    about = record.about
    info = about or WorkerInfo()
    return WorkerView(
        worker=record.worker,
        status=get_worker_state(record, settings),
        holds=record.holds,
        silent_s=record.silent_s,
        host=None if about is None else about.host,
        pid=None if about is None else about.pid,
        queues=info.queues,
        handlers=info.handlers,
        concurrency=None if about is None else about.concurrency,
        beat_s=info.beat_s or None,
        started_at=None if about is None else Timestamp(about.started_at),
        version=None if about is None else about.version,
        claimed_at=Timestamp(info.claimed_at) if info.claimed_at else None,
        tasks=[_build_running_task(task) for task in info.tasks],
        abandoned_threads=info.abandoned_threads,
    )


def _build_running_task(task: RunningTaskInfo) -> RunningTask:
    return RunningTask(
        execution_id=ExecutionId(task.execution_id),
        node_id=task.node_id,
        item=None if task.item == NO_ITEM else task.item,
        attempt=task.attempt,
        workflow=task.workflow,
        handler=task.handler,
        started_at=Timestamp(task.started_at),
    )


def _worker_not_found_error(name: str) -> NotFoundError:
    return NotFoundError(
        "worker", escape_unprintable(name), hint="'runnel workers' shows all workers"
    )


# Queues: their waiting tasks, the workers that take these tasks, and problems.

INBOX_QUEUE = "inbox"
_QUEUE_KEY_PREFIX = "tasks:"


def to_queue_name(key: str) -> str:
    """Returns the name of a queue that workflows and `--queues` use, for its key in the store."""
    return key.removeprefix(_QUEUE_KEY_PREFIX)


def to_queue_key(name: str | None) -> str | None:
    """Returns the key of a queue in stores.

    The name `inbox` is also the key: dead letters of commands that the orchestrator can't process
    have this queue.
    """
    if name is None or name == INBOX_QUEUE:
        return name
    return f"{_QUEUE_KEY_PREFIX}{to_queue_name(name)}"


def build_queue_views(
    records: Sequence[QueueRecord], workers: Sequence[WorkerRecord], settings: Settings
) -> list[QueueView]:
    alive = [
        worker.about
        for worker in workers
        if get_worker_state(worker, settings) == "alive" and worker.about
    ]
    views = []
    for record in records:
        name = to_queue_name(record.queue)
        serving = sum(about.serves(record.queue) for about in alive)
        problem = _describe_queue_problem(record, name, settings, serving=serving, alive=len(alive))
        views.append(
            QueueView(
                queue=name,
                waiting=record.depth,
                oldest_s=record.waits_s,
                workers=serving,
                problem=problem,
            )
        )
    return views


def _describe_queue_problem(
    record: QueueRecord, name: str, settings: Settings, *, serving: int, alive: int
) -> str:
    if record.depth and not alive:
        return "the tasks of the queue wait: no worker is alive"
    if record.depth and not serving:
        return (
            f"no living worker takes tasks of the queue: they fail after {settings.unserved_s:g} s"
        )
    stale_s = settings.stale_s.get(name)
    if record.depth and stale_s is not None and record.waits_s > stale_s:
        return f"the oldest task has waited for more than {stale_s:g} s: start more workers"
    return ""


# Partitions: their owners, and their unprocessed messages.


class PartitionMonitor:
    """Inspects partitions, and remembers their leases between calls.

    The owner of a partition is silent if its lease has not changed for `lease_s` since an earlier
    call.
    """

    def __init__(self, store: Store, clock: Clock, *, lease_s: float) -> None:
        self._store = store
        self._liveness: FailureDetector[int, tuple[str, int, int]] = FailureDetector(clock, lease_s)

    async def inspect(self) -> Sequence[PartitionView]:
        """Returns the views of all partitions, by number; raises StoreError."""
        numbers = sorted(await self._store.partitions())
        self._liveness.retain_only(set(numbers))
        return await asyncio.gather(*[self.inspect_partition(number) for number in numbers])

    async def inspect_partition(self, number: int) -> PartitionView:
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


# Concurrency keys: the tasks that hold them or wait for them.

HOLDERS_SHOWN_MAX = 100


async def list_concurrency_keys(
    store: Store, *, after: str = "", limit: int = 50
) -> list[ConcurrencyKeyView]:
    """Lists the concurrency keys that tasks hold or wait for, sorted by key.

    `after` is the last key of the previous page.
    """
    listed: list[ConcurrencyKeyView] = []
    while len(listed) < limit:
        keys = await _load_next_keys(store, after, limit)
        histories = await store.load_many([make_limit_id(key) for key in keys])
        views = [
            _build_key_view(replay_limit(key, entries))
            for key, entries in zip(keys, histories, strict=True)
        ]
        listed += [view for view in views if view.holding or view.waiting]
        if len(keys) < limit:
            break
        after = keys[-1]
    return listed[:limit]


async def _load_next_keys(store: Store, after: str, limit: int) -> list[str]:
    keys = {
        key
        for partition in await store.partitions()
        for key in await store.list_concurrency_keys(partition)
        if key > after
    }
    return nsmallest(limit, keys)


def _build_key_view(limit: ConcurrencyLimit) -> ConcurrencyKeyView:
    return ConcurrencyKeyView(
        key=limit.key,
        holding=len(limit.holders),
        waiting=len(limit.waiters),
        holders=_build_holders(limit.holders),
        waiters=_build_holders(limit.waiters),
    )


def _build_holders(limits: Mapping[TaskToken, int]) -> list[KeyHolder]:
    return [
        KeyHolder(
            execution_id=token.execution_id,
            node_id=token.node_id,
            item=None if token.item == NO_ITEM else token.item,
            attempt=token.attempt,
            limit=limit,
        )
        for token, limit in islice(limits.items(), HOLDERS_SHOWN_MAX)
    ]


LIMITS_PAGE_SIZE = 200


class StoreOperations:
    """The client's `Operations` over a store."""

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        settings: Settings,
        partitions: PartitionMonitor | None = None,
    ) -> None:
        self._store = backend.store
        self._tasks = backend.tasks
        self._settings = settings
        self._partitions = partitions or PartitionMonitor(
            backend.store, clock, lease_s=settings.lease_s
        )

    async def workers(self) -> list[WorkerView]:
        records = await self._tasks.workers(with_dead=True)
        records = sorted(records, key=lambda record: (record.is_dead, record.worker))
        return [build_worker_view(record, self._settings) for record in records]

    async def worker(self, name: str) -> WorkerView:
        for record in await self._tasks.workers(with_dead=True):
            if record.worker == name:
                return build_worker_view(record, self._settings)
        raise _worker_not_found_error(name)

    async def drain(self, worker: str) -> None:
        view = await self.worker(worker)
        if view.status == "dead":
            raise WrongStateError(f"worker {worker} is dead and can't be drained")
        if not await self._tasks.drain(worker):
            raise _worker_not_found_error(worker)

    async def queues(self) -> list[QueueView]:
        records, workers = await self._tasks.queues(), await self._tasks.workers()
        return build_queue_views(records, workers, self._settings)

    async def limits(self) -> AsyncIterator[ConcurrencyKeyView]:
        after = ""
        while True:
            page = await list_concurrency_keys(self._store, after=after, limit=LIMITS_PAGE_SIZE)
            for view in page:
                yield view
            if len(page) < LIMITS_PAGE_SIZE:
                return
            after = page[-1].key

    async def partitions(self) -> Sequence[PartitionView]:
        return await self._partitions.inspect()

    async def partition_of(self, execution_id: ExecutionId) -> PartitionView:
        return await self._partitions.inspect_partition(await self._store.route(execution_id))


# Gauges that are read from the store when a scraper asks for metrics.

# The minimum interval between two reads of the gauges. A scrape within this interval gets the
# values of the last read.
GAUGES_CACHE_S = 5.0
# The maximum duration of a read. Prometheus gives up a scrape after 10 s.
READ_TIMEOUT_S = 5.0

WORKER_STATES: tuple[WorkerStatus, ...] = ("alive", "draining", "silent", "dead")


class StoreGauges:
    """Gauges of a store. Every process reports the same values: use their maximum, not their sum.

    The store and the archive are read separately. If one of them can't be reached, its gauges are
    left out and its `runnel_store_up` is 0.
    """

    def __init__(
        self, backend: Backend, clock: Clock, settings: Settings, partitions: PartitionMonitor
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._settings = settings
        self._partitions = partitions
        self._refresh_lock = asyncio.Lock()
        self._refreshed_at: float | None = None
        self._families_by_part: dict[str, Sequence[MetricFamily]] = {}

    async def refresh(self) -> None:
        """Reads the gauges from the store, at most every 5 s.

        Raises no error if the store is down.
        """
        async with self._refresh_lock:
            now = self._clock.monotonic()
            if self._refreshed_at is not None and now - self._refreshed_at < GAUGES_CACHE_S:
                return
            families_by_part = {
                "store": await self._read_part(self._read_store),
                "archive": await self._read_part(self._read_archive),
            }
            self._families_by_part = {
                part: families for part, families in families_by_part.items() if families
            }
            self._refreshed_at = self._clock.monotonic()

    def collect_families(self) -> list[MetricFamily]:
        is_up = {part: float(part in self._families_by_part) for part in ("store", "archive")}
        known = {
            family.name: family
            for families in self._families_by_part.values()
            for family in families
        }
        known["runnel_store_up"] = _build_gauge("runnel_store_up", is_up)
        return [known.get(name) or build_gauge(name, *GAUGES[name]) for name in GAUGES]

    async def _read_part(
        self, read: Callable[[], Awaitable[Sequence[MetricFamily]]]
    ) -> Sequence[MetricFamily]:
        try:
            return await self._clock.run_within(READ_TIMEOUT_S, read())
        except (StoreError, TimeoutError):
            return ()

    async def _read_store(self) -> Sequence[MetricFamily]:
        tasks = self._backend.tasks
        queues = await tasks.queues()
        depths: Counter[str] = Counter()
        oldest: dict[str, float] = {}
        for number, record in enumerate(sorted(queues, key=lambda queue: -queue.depth)):
            name = to_queue_name(record.queue) if number < LABEL_VALUES_MAX else OTHER_LABEL
            depths[name] += record.depth
            oldest[name] = max(oldest.get(name, 0.0), record.waits_s if record.depth else 0.0)
        workers = await tasks.workers(with_dead=True)
        states = Counter(get_worker_state(worker, self._settings) for worker in workers)
        held = sum(worker.holds for worker in workers)
        abandoned = sum(
            worker.about.abandoned_threads
            for worker in workers
            if worker.about is not None and not worker.is_dead
        )
        return [
            _build_gauge("runnel_queue_depth", depths),
            _build_gauge("runnel_queue_oldest_seconds", oldest),
            _build_gauge("runnel_workers", {state: states[state] for state in WORKER_STATES}),
            _build_single_gauge("runnel_tasks_held", held),
            _build_single_gauge("runnel_threads_abandoned", abandoned),
            *await self._read_partitions(),
        ]

    async def _read_partitions(self) -> Sequence[MetricFamily]:
        views = await self._partitions.inspect()
        owners = Counter(view.owner for view in views if view.owner and not view.is_silent)
        return [
            _build_gauge("runnel_partitions_owned", owners),
            _build_single_gauge("runnel_partitions_orphaned", len(views) - owners.total()),
            _build_single_gauge(
                "runnel_inbox_unread_seconds", max((view.unread_s for view in views), default=0)
            ),
            _build_single_gauge(
                "runnel_commits_unarchived", sum(view.unarchived for view in views)
            ),
        ]

    async def _read_archive(self) -> Sequence[MetricFamily]:
        return [
            _build_single_gauge(
                "runnel_dead_letters", await self._backend.archive.count_dead_letters()
            )
        ]


GAUGES: Mapping[str, tuple[str, str | None]] = {
    "runnel_store_up": ("Whether this part of the store answered.", "part"),
    "runnel_queue_depth": ("Tasks that wait in a queue.", "queue"),
    "runnel_queue_oldest_seconds": ("How long the oldest task of a queue has waited.", "queue"),
    "runnel_workers": ("Workers by state; at most a hundred dead ones.", "state"),
    "runnel_tasks_held": ("Tasks that workers have claimed and not reported.", None),
    "runnel_threads_abandoned": (
        "Functions that continue in a thread of a worker after their task has ended.",
        None,
    ),
    "runnel_partitions_owned": ("Partitions that an orchestrator decides for.", "owner"),
    "runnel_partitions_orphaned": ("Partitions without a living orchestrator.", None),
    "runnel_inbox_unread_seconds": (
        "How long the oldest message of all partitions is unread.",
        None,
    ),
    "runnel_commits_unarchived": ("Commits that the archive does not have yet.", None),
    "runnel_dead_letters": ("Dead letters that wait for a retry or a purge.", None),
}
"""The help text and the label name of each gauge."""


def _build_gauge(name: str, values: Mapping[str, float]) -> MetricFamily:
    return build_gauge(name, *GAUGES[name], values)


def _build_single_gauge(name: str, value: float) -> MetricFamily:
    return _build_gauge(name, {"": value})
