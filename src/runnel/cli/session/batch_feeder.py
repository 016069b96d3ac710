"""Submits the documents of a batch, a limited number at a time, and waits for their results.

The id of an execution is derived from the batch's name and the document's key. So no document is
submitted twice, and a later run of the same batch finds the executions of an earlier one.
"""

import asyncio
from bisect import insort
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

import msgspec

from runnel.authoring.input_schema import CheckedInput
from runnel.cli.render.text import HOUR_S
from runnel.cli.session.batch_documents import BatchDocument
from runnel.client.idempotency import derive_execution_id
from runnel.client.protocol import Client
from runnel.core.events import ExecutionFinished, NodeWaits, Wait
from runnel.core.graph import Graph
from runnel.core.ids import ExecutionId
from runnel.core.states import FINAL_EXECUTION_STATES, IN_FLIGHT_STATES, ExecutionState
from runnel.core.values import Json
from runnel.core.workflow import WAIT_FOR_SIGNAL, Workflow
from runnel.engine.store_retry import StoreRetry
from runnel.errors import InputError, KeyReusedError
from runnel.notify.event_bus import CommittedEvents, EventBus, StartedTask
from runnel.ports.clock import Clock
from runnel.views.execution import ExecutionSummary


class DocumentOutcome(msgspec.Struct, frozen=True):
    """The result of one document of a batch.

    `is_from_earlier_run` means that the document's execution ended before this command began.
    """

    document: BatchDocument
    summary: ExecutionSummary
    is_from_earlier_run: bool = False

    @property
    def is_completed(self) -> bool:
        return self.summary.status is ExecutionState.COMPLETED

    @property
    def took_s(self) -> float:
        summary = self.summary
        return (summary.finished_at or 0.0) - (summary.started_at or summary.finished_at or 0.0)


class BatchTally:
    """Counts the results of a batch, and computes the documents per hour.

    `waiting` has the signal that each waiting execution waits for; the feeder updates it.
    """

    def __init__(self, total: int, *, started_at: float) -> None:
        self.total = total
        self.started_at = started_at
        self.done_earlier = 0
        self.states: Counter[str] = Counter()
        self.failures: list[DocumentOutcome] = []
        self.waiting: Mapping[ExecutionId, str] = {}
        self._took_s: list[float] = []

    def add(self, outcome: DocumentOutcome) -> None:
        self.states[outcome.summary.status.value] += 1
        if not outcome.is_completed:
            self.failures.append(outcome)
        if outcome.is_from_earlier_run:
            self.done_earlier += 1
        else:
            insort(self._took_s, outcome.took_s)

    @property
    def done(self) -> int:
        return self.states.total()

    @property
    def done_now(self) -> int:
        return len(self._took_s)

    def per_hour(self, now: float) -> float:
        """Returns the documents per hour that this command finishes; 0 before the first."""
        return HOUR_S * self.done_now / max(1e-9, now - self.started_at)

    def remaining_s(self, now: float) -> float | None:
        """Returns the estimated seconds until each document has ended or waits for a signal.

        Returns None if there is no estimate: before the first result, and if all other documents
        wait for a signal.
        """
        waiting = len(self.waiting)
        passed, left = self.done_now + waiting, self.total - self.done - waiting
        if not passed or (waiting and not left):
            return None
        return left * (now - self.started_at) / passed

    def quantile_s(self, share: float) -> float | None:
        """Returns the duration that this share of the executions did not exceed."""
        if not self._took_s:
            return None
        return self._took_s[min(self.done_now - 1, int(share * self.done_now))]

    def to_document(self, name: str, now: float) -> dict[str, Json]:
        return {
            "batch": name,
            "documents": self.total,
            **{state.lower(): self.states[state] for state in ("COMPLETED", "FAILED", "CANCELLED")},
            "unfinished": self.total - self.done,
            "waiting": len(self.waiting),
            "done_before": self.done_earlier,
            "took_s": round(now - self.started_at, 3),
            "documents_per_hour": round(self.per_hour(now)),
            "p50_s": _round_seconds(self.quantile_s(0.5)),
            "p95_s": _round_seconds(self.quantile_s(0.95)),
        }


def _round_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


# The feeder polls the executions in flight at this interval. An execution that ends in this process
# wakes the feeder at once.
POLL_INTERVAL_S = 0.2
IDS_PER_LOOKUP = 500
ADOPT_INTERVAL_S = 2.0
BATCH_LABEL = "runnel.batch"
RERUN_KEY = "batch"

# Executions that wait for a signal do not count in flight, but there is a maximum, so that a large
# file does not fill the store. The feeder inspects a few executions at this interval.
WAITING_MAX = 10_000
INSPECT_INTERVAL_S = 1.0
INSPECTIONS_MAX = 20
_SIGNAL_TEXT = "signal '"
_CHILD_TEXT = "child execution "


def has_signal_node(workflow: Workflow) -> bool:
    """Returns True if a node of the workflow or of a child workflow may wait for a signal.

    The nodes of a child that is named, not included, are unknown.
    """
    return any(
        node.handler == WAIT_FOR_SIGNAL
        or (node.handler == "workflow" and (node.child is None or has_signal_node(node.child)))
        for node in workflow.nodes
    )


async def find_awaited_signal(client: Client, execution_id: ExecutionId) -> str | None:
    """Returns text such as `signal 'approve'` if the execution continues only after a signal.

    Returns None if it has ended or can continue without one.
    """
    view = await client.get(execution_id)
    if view.status is not ExecutionState.RUNNING:
        return None
    signal: str | None = None
    for node in view.nodes.values():
        if node.waits_for is None:
            if node.status in IN_FLIGHT_STATES:
                return None
            continue
        _, is_signal, rest = node.waits_for.partition(_SIGNAL_TEXT)
        _, is_child, child_id = node.waits_for.partition(_CHILD_TEXT)
        awaited = f"{is_signal}{rest}" if is_signal else None
        if is_child:
            awaited = await find_awaited_signal(client, ExecutionId(child_id))
        if awaited is None:
            return None
        signal = signal or awaited
    return signal


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentBatch:
    """A batch of documents to run; `name` identifies it among the batches of the workflow."""

    name: str
    graph: Graph
    documents: Sequence[BatchDocument]
    labels: Mapping[str, str] = field(default_factory=dict)
    in_flight_max: int = 100
    retries_failed: bool = False

    @property
    def workflow(self) -> Workflow:
        return self.graph.workflow

    def make_key(self, document: BatchDocument) -> str:
        return f"{self.name}:{document.key}"

    def make_execution_id(self, document: BatchDocument) -> ExecutionId:
        return derive_execution_id(self.workflow.name, self.make_key(document))


AdoptCallback = Callable[[ExecutionId], Awaitable[None]]


class BatchFeeder:
    """Submits documents and calls `on_outcome` once with the result of each document.

    `adopt` is called every 2 s with each execution in flight, so that this process can resume the
    executions of a dead process of the same batch. Over HTTP (`is_over_http`), the server checks
    the input again, and refuses labels that begin with `runnel.`.
    """

    def __init__(
        self,
        batch: DocumentBatch,
        client: Client,
        clock: Clock,
        *,
        event_bus: EventBus,
        on_outcome: Callable[[DocumentOutcome], Awaitable[None]],
        adopt: AdoptCallback | None = None,
        is_over_http: bool = False,
    ) -> None:
        self._batch = batch
        self._client = client
        self._clock = clock
        self._event_bus = event_bus
        self._on_outcome = on_outcome
        self._adopt = adopt
        own_labels = {} if is_over_http else {BATCH_LABEL: batch.name}
        self._labels = {**batch.labels, **own_labels}
        self._is_over_http = is_over_http
        self._adopted_at = clock.monotonic()
        self._store_retry = StoreRetry(clock, event_bus, "batch")
        self._in_flight: dict[ExecutionId, BatchDocument] = {}
        self._wakeup = asyncio.Event()
        self._ended: list[ExecutionId] = []
        self._can_wait = has_signal_node(batch.workflow)
        self._inspected_at = clock.monotonic()
        self._began_to_wait: list[ExecutionId] = []
        self.waiting: dict[ExecutionId, str] = {}

    @property
    def in_flight(self) -> int:
        """The number of unfinished executions that do not wait for a signal."""
        return len(self._in_flight) - len(self.waiting)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until all documents have ended, or until `stop` is set."""
        end_watch = self._event_bus.watch(self._on_notification)
        pending = iter(self._batch.documents)
        try:
            while not stop.is_set():
                fed = await self._feed(pending)
                if not fed and not self._in_flight:
                    return
                if not fed or not self._count_room():
                    await self._poll_outcomes(stop)
        finally:
            end_watch()

    async def _feed(self, pending: Iterator[BatchDocument]) -> bool:
        """Submits as many documents as the limit allows; returns False if none is pending."""
        room = self._count_room()
        if not room:
            return True
        documents = list(islice(pending, room))
        if not documents:
            return False
        ids = [self._batch.make_execution_id(document) for document in documents]
        known = await self._load_summaries(ids)
        async with asyncio.TaskGroup() as group:
            for execution_id, document in zip(ids, documents, strict=True):
                group.create_task(self._start_document(document, known.get(execution_id)))
        return True

    def _count_room(self) -> int:
        """Returns the number of documents that may be submitted now."""
        if len(self.waiting) >= WAITING_MAX:
            return 0
        return min(IDS_PER_LOOKUP, max(0, self._batch.in_flight_max - self.in_flight))

    async def _start_document(
        self, document: BatchDocument, summary: ExecutionSummary | None
    ) -> None:
        """Submits a document, or reports the outcome of its execution from an earlier run.

        A known document is submitted as well: the submit checks that its content is unchanged.
        """
        batch = self._batch
        execution_id = await self._submit(document)
        if summary is not None:
            summary = await self._find_last_rerun(summary)
            execution_id = summary.execution_id
        if summary is not None and summary.status in FINAL_EXECUTION_STATES:
            if summary.status is ExecutionState.COMPLETED or not batch.retries_failed:
                await self._on_outcome(DocumentOutcome(document, summary, is_from_earlier_run=True))
                return
            execution_id = await self._client.rerun(execution_id, idempotency_key=RERUN_KEY)
        self._in_flight[execution_id] = document

    async def _submit(self, document: BatchDocument) -> ExecutionId:
        batch = self._batch
        # `read_documents` has checked the input.
        input_ = document.input if self._is_over_http else CheckedInput(document.input)
        try:
            # A retry has the same idempotency key, so it can't create a second execution.
            return await self._store_retry.run(
                lambda: self._client.submit(
                    batch.graph,
                    input_,
                    labels=self._labels,
                    idempotency_key=batch.make_key(document),
                ),
                "submit",
            )
        except KeyReusedError as error:
            raise InputError(
                f"line {document.line}: execution {error.execution_id} of the batch "
                f"'{batch.name}' has the same id, but was submitted with {error.difference}; "
                "give this batch another --name, or undo the change"
            ) from error

    async def _find_last_rerun(self, summary: ExecutionSummary) -> ExecutionSummary:
        """Returns the last rerun that `--retry-failed` made of an execution, or the execution."""
        while (
            summary.status in FINAL_EXECUTION_STATES
            and summary.status is not ExecutionState.COMPLETED
        ):
            rerun_id = derive_execution_id(summary.execution_id, RERUN_KEY)
            rerun = (await self._client.summaries([rerun_id])).get(rerun_id)
            if rerun is None:
                return summary
            summary = rerun
        return summary

    async def _poll_outcomes(self, stop: asyncio.Event) -> None:
        """Waits for a notification, at most 0.2 s, then reports the executions that have ended.

        If executions ended in this process, polls only these; if none did, polls all in flight.
        """
        async with asyncio.TaskGroup() as group:
            stopped = group.create_task(self._wake_on_stop(stop))
            await self._clock.wait(self._wakeup, POLL_INTERVAL_S)
            stopped.cancel()
        self._wakeup.clear()
        ended, self._ended = self._ended, []
        ids = ended or ([] if self._began_to_wait else list(self._in_flight))
        for first in range(0, len(ids), IDS_PER_LOOKUP):
            summaries = await self._load_summaries(ids[first : first + IDS_PER_LOOKUP])
            for execution_id, summary in summaries.items():
                if summary.status in FINAL_EXECUTION_STATES:
                    self.waiting.pop(execution_id, None)
                    await self._on_outcome(
                        DocumentOutcome(self._in_flight.pop(execution_id), summary)
                    )
        if not ended:
            await self._adopt_some()
        if self._can_wait:
            await self._find_waiting()

    async def _find_waiting(self) -> None:
        """Inspects executions that began to wait in this process, or else a few in flight.

        Executions that are not known to wait come first.
        """
        ids, self._began_to_wait = self._began_to_wait, []
        now = self._clock.monotonic()
        if not ids and now - self._inspected_at >= INSPECT_INTERVAL_S:
            self._inspected_at = now
            active = [id_ for id_ in self._in_flight if id_ not in self.waiting]
            ids = list(islice(chain(active, self.waiting), INSPECTIONS_MAX))
        for execution_id in ids:
            if execution_id not in self._in_flight:
                continue
            signal = await self._store_retry.run(
                partial(find_awaited_signal, self._client, execution_id), "get"
            )
            self.waiting.pop(execution_id, None)
            if signal is not None:
                self.waiting[execution_id] = signal
            else:  # inspect the others before this one again
                self._in_flight[execution_id] = self._in_flight.pop(execution_id)

    async def _adopt_some(self) -> None:
        now = self._clock.monotonic()
        if self._adopt is not None and now - self._adopted_at >= ADOPT_INTERVAL_S:
            self._adopted_at = now
            for execution_id in list(self._in_flight):
                await self._adopt(execution_id)

    async def _load_summaries(
        self, ids: Sequence[ExecutionId]
    ) -> Mapping[ExecutionId, ExecutionSummary]:
        """Loads the summaries of the executions that exist; retries until the store responds."""
        return await self._store_retry.run(lambda: self._client.summaries(ids), "summaries")

    async def _wake_on_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wakeup.set()

    def _on_notification(self, notification: CommittedEvents | StartedTask) -> None:
        if (
            isinstance(notification, StartedTask)
            or notification.execution_id not in self._in_flight
        ):
            return
        execution_id = ExecutionId(notification.execution_id)
        self.waiting.pop(execution_id, None)
        for event in notification.events:
            if isinstance(event, ExecutionFinished):
                self._ended.append(execution_id)
                self._wakeup.set()
            elif isinstance(event, NodeWaits) and event.wait is Wait.SIGNAL:
                self._began_to_wait.append(execution_id)
                self._wakeup.set()
