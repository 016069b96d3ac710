"""Runs a workflow once for each input of a batch, with a limited number in flight.

The id of an execution is derived from the batch's name and the input's key. So no input is
submitted twice, and a later run of the same batch finds the executions of an earlier one.
"""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice

import msgspec

from runnel.authoring.input_schema import CheckedInput, find_value_problems
from runnel.authoring.payloads import check_text, encode_payload
from runnel.authoring.storable_values import to_json
from runnel.client.execution_lists import iter_headers
from runnel.client.idempotency import derive_execution_id
from runnel.client.protocol import Client, load_whole_output
from runnel.client.submissions import format_problems
from runnel.core.events import ExecutionFinished, NodeWaits, Wait
from runnel.core.graph import Graph, compile_canonical
from runnel.core.ids import ExecutionId
from runnel.core.message_text import describe_value, quote_name
from runnel.core.states import (
    FINAL_EXECUTION_STATES,
    IN_FLIGHT_STATES,
    UNFINISHED_STATES,
    ExecutionState,
)
from runnel.core.validation import build_graph
from runnel.core.values import Json
from runnel.core.workflow import WAIT_FOR_SIGNAL, Workflow
from runnel.engine.store_retry import StoreRetry
from runnel.errors import InputError, InvalidInputError, KeyReusedError
from runnel.notify.event_bus import CommittedEvents, EventBus, StartedTask
from runnel.ports import Backend
from runnel.ports.archive import ExecutionFilter
from runnel.ports.clock import Clock
from runnel.views.execution import ExecutionSummary

KEY_CHARS_MAX = 200
NAME_CHARS_MAX = 200
# The default number of executions in flight on servers, and per slot of an embedded engine: so many
# that no slot is idle until the feeder notices the end of an execution.
IN_FLIGHT_MAX = 100
IN_FLIGHT_PER_SLOT = 2
_KEY_BYTES = 12
_encode_canonical = msgspec.json.Encoder(order="deterministic").encode


class InputNames(msgspec.Struct, frozen=True):
    """How errors name an input, its value, and the options of a batch."""

    place: str = "inputs[{}]"
    value: str = "inputs[{}]"
    id_option: str = "id_field"
    name_option: str = "name"


PROGRAM_NAMES = InputNames()


class BatchItem(msgspec.Struct, frozen=True):
    """One input of a batch; its `key` stays the same if the input moves in the file or list.

    `number` is the position in the list, or the line of the file.
    """

    number: int
    key: str
    data: bytes

    @property
    def input(self) -> Json:
        return msgspec.json.decode(self.data)


def build_items(
    inputs: Iterable[tuple[int, Json]],
    workflow: Workflow,
    *,
    id_field: str | None,
    names: InputNames = PROGRAM_NAMES,
) -> tuple[list[BatchItem], list[str]]:
    """Returns the items of numbered inputs, and the problems of all inputs.

    The key of an item is the value at `id_field`; without `id_field`, a hash of the content. If
    inputs are equal, a number is added to the hash, in their order. Raises InputError for a wrong
    `id_field`.
    """
    if id_field is not None and not all(id_field.split(".")):
        raise InputError(
            f"{names.id_option}: expected a name such as id or meta.number, got '{id_field}'"
        )
    problems: list[str] = []
    items: dict[str, BatchItem] = {}
    repeated: Counter[str] = Counter()
    for number, value in inputs:
        if workflow.input is not None:
            problems += find_value_problems(workflow.input, value, where=names.value.format(number))
        data = _encode_canonical(value)
        if id_field is None:
            key = hashlib.blake2b(data, digest_size=_KEY_BYTES).hexdigest()
            repeated[key] += 1
            if repeated[key] > 1:
                key = f"{key}#{repeated[key]}"
        else:
            key = _extract_key(number, value, id_field, problems, names)
            if key in items:
                place, first = names.place.format(number), names.place.format(items[key].number)
                problems.append(f"{place}: {id_field} is {quote_name(key)}, as in {first}")
        items[key] = BatchItem(number, key, data)
    return list(items.values()), problems


def _extract_key(
    number: int, value: Json, path: str, problems: list[str], names: InputNames
) -> str:
    key = value
    for name in path.split("."):
        key = key.get(name) if isinstance(key, dict) else None
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str) or not 0 < len(key) <= KEY_CHARS_MAX:
        place = names.place.format(number)
        problems.append(
            f"{place}: expected {path} to be a text or a whole number, got {describe_value(key)}"
        )
        return place
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The items of a batch; `name` identifies it among the batches of the workflow.

    With `retries_failed`, failed items of an earlier run are rerun.
    """

    name: str
    graph: Graph
    items: Sequence[BatchItem]
    labels: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None
    in_flight_max: int = IN_FLIGHT_MAX
    retries_failed: bool = False
    names: InputNames = PROGRAM_NAMES

    @property
    def workflow(self) -> Workflow:
        return self.graph.workflow

    def make_key(self, item: BatchItem) -> str:
        return f"{self.name}:{item.key}"

    def make_execution_id(self, item: BatchItem) -> ExecutionId:
        return derive_execution_id(self.workflow.name, self.make_key(item))


class BatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `run_many`; its docstring explains them."""

    name: str | None = None
    id_field: str | None = None
    in_flight: int = IN_FLIGHT_MAX
    priority: int | None = None
    retry_failed: bool = False


def build_batch(
    workflow: Workflow,
    inputs: Iterable[Json],
    options: BatchOptions,
    *,
    labels: Mapping[str, str],
    default_name: str,
) -> Batch:
    """Checks the workflow, the options and all inputs.

    Raises InvalidWorkflowError, InputError, and InvalidInputError with the problems of all inputs.
    """
    if options.in_flight < 1:
        raise InputError(f"in_flight: expected at least 1, got {options.in_flight}")
    name = default_name if options.name is None else options.name
    check_text(name, "name", chars_max=NAME_CHARS_MAX)
    build_graph(workflow)  # raises InvalidWorkflowError
    graph = compile_canonical(workflow)
    values = [
        (index, _convert_input(value, where=f"inputs[{index}]"))
        for index, value in enumerate(inputs)
    ]
    items, problems = build_items(values, graph.workflow, id_field=options.id_field)
    if problems:
        raise InvalidInputError(format_problems("inputs", problems), problems=problems)
    return Batch(
        name=name,
        graph=graph,
        items=items,
        labels=labels,
        priority=options.priority,
        in_flight_max=options.in_flight,
        retries_failed=options.retry_failed,
    )


def _convert_input(value: Json, *, where: str) -> Json:
    """Returns a value as JSON stores it: a tuple becomes a list, and a dataclass an object.

    A set becomes a sorted list. Its order differs between processes, and the key of an input must
    not. Raises PayloadError.
    """
    encode_payload(value, where=where)
    return to_json(value)


class BatchOutcome(msgspec.Struct, frozen=True):
    """The final execution of one item.

    `is_from_earlier_run` means that the execution ended before this run of the batch began.
    """

    item: BatchItem
    summary: ExecutionSummary
    is_from_earlier_run: bool = False

    @property
    def is_completed(self) -> bool:
        return self.summary.status is ExecutionState.COMPLETED

    @property
    def took_s(self) -> float:
        summary = self.summary
        return (summary.finished_at or 0.0) - (summary.started_at or summary.finished_at or 0.0)


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one input of `run_many`.

    `index` is the position of the input. `output` is None unless `status` is COMPLETED. `error` is
    None unless the execution failed or was cancelled. `took_s` is the time from the start of the
    execution to its end. `is_from_earlier_run` means that the execution ended before this call.
    """

    index: int
    key: str
    input: Json
    execution_id: ExecutionId
    status: ExecutionState
    output: Json
    error: str | None
    took_s: float
    is_from_earlier_run: bool


async def load_result(client: Client, outcome: BatchOutcome) -> BatchResult:
    summary = outcome.summary
    view = None
    if outcome.is_completed:
        view = await load_whole_output(client, await client.get(summary.execution_id))
    return BatchResult(
        index=outcome.item.number,
        key=outcome.item.key,
        input=outcome.item.input,
        execution_id=summary.execution_id,
        status=summary.status,
        output=None if view is None else view.output,
        error=summary.error,
        took_s=round(outcome.took_s, 3),
        is_from_earlier_run=outcome.is_from_earlier_run,
    )


# The feeder polls the executions in flight at this interval. An execution that ends in this process
# wakes the feeder at once.
POLL_INTERVAL_S = 0.2
IDS_PER_LOOKUP = 500
# The size of the inputs of one request. A server refuses a body above 10 MB by default.
REQUEST_BYTES_MAX = 1_000_000
ADOPT_INTERVAL_S = 2.0
BATCH_LABEL = "runnel.batch"
RERUN_KEY = "batch"

# Executions that wait for a signal do not count in flight, but there is a maximum, so that a large
# batch does not fill the store. The feeder inspects a few executions at this interval.
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


async def find_abandoned_partitions(backend: Backend, batch: Batch) -> frozenset[int]:
    """Returns the partitions with executions of this batch that no live process owns."""
    unfinished = ExecutionFilter(
        states=UNFINISHED_STATES,
        workflow=batch.workflow.name,
        labels={BATCH_LABEL: batch.name},
        limit=IDS_PER_LOOKUP,
    )
    partitions: set[int] = set()
    async for header in iter_headers(backend.archive, unfinished):
        partitions.add(await backend.store.route(header.execution_id))
    return frozenset(
        [partition for partition in partitions if await backend.store.observe(partition) is None]
    )


AdoptCallback = Callable[[ExecutionId], Awaitable[None]]


class BatchFeeder:
    """Submits the items of a batch, and yields the outcome of each item once.

    `adopt` is called every 2 s with each execution in flight, so that this process can resume the
    executions of a dead process of the same batch. Over HTTP (`is_over_http`), the server checks
    the input again, and refuses labels that begin with `runnel.`.
    """

    def __init__(
        self,
        batch: Batch,
        client: Client,
        clock: Clock,
        *,
        event_bus: EventBus,
        adopt: AdoptCallback | None = None,
        is_over_http: bool = False,
    ) -> None:
        self._batch = batch
        self._client = client
        self._clock = clock
        self._event_bus = event_bus
        self._adopt = adopt
        own_labels = {} if is_over_http else {BATCH_LABEL: batch.name}
        self._labels = {**batch.labels, **own_labels}
        self._is_over_http = is_over_http
        self._adopted_at = clock.monotonic()
        self._store_retry = StoreRetry(clock, event_bus, "batch")
        self._in_flight: dict[ExecutionId, BatchItem] = {}
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

    async def run(self, stop: asyncio.Event) -> AsyncGenerator[BatchOutcome, None]:
        """Yields outcomes until all items have ended, or until `stop` is set.

        Submits further items only while the caller iterates.
        """
        end_watch = self._event_bus.watch(self._on_notification)
        pending = deque(self._batch.items)
        try:
            while not stop.is_set() and (pending or self._in_flight):
                for outcome in await self._feed(pending):
                    yield outcome
                if self._in_flight and not (pending and self._count_room()):
                    for outcome in await self._poll_outcomes(stop):
                        yield outcome
        finally:
            end_watch()

    async def _feed(self, pending: deque[BatchItem]) -> list[BatchOutcome]:
        """Submits as many items as the limits allow; returns outcomes of an earlier run.

        A known item is submitted as well: the submit checks that its content is unchanged.
        """
        items = self._take_items(pending)
        if not items:
            return []
        ids = [self._batch.make_execution_id(item) for item in items]
        known = await self._load_summaries(ids)
        # Registered before the submit, because an execution may end before the submit returns.
        new = {id_: item for id_, item in zip(ids, items, strict=True) if id_ not in known}
        self._in_flight |= new
        await self._submit(items)
        outcomes = []
        for id_, item in zip(ids, items, strict=True):
            if id_ in known:
                outcome = await self._continue_item(item, known[id_])
                outcomes += [] if outcome is None else [outcome]
        return outcomes

    def _take_items(self, pending: deque[BatchItem]) -> list[BatchItem]:
        """Removes the items of the next request; a large item is alone in its request."""
        items: list[BatchItem] = []
        room, size = self._count_room(), 0
        while pending and len(items) < room:
            size += len(pending[0].data)
            if items and size > REQUEST_BYTES_MAX:
                break
            items.append(pending.popleft())
        return items

    def _count_room(self) -> int:
        """Returns the number of items that may be submitted now."""
        if len(self.waiting) >= WAITING_MAX:
            return 0
        return min(IDS_PER_LOOKUP, max(0, self._batch.in_flight_max - self.in_flight))

    async def _continue_item(
        self, item: BatchItem, summary: ExecutionSummary
    ) -> BatchOutcome | None:
        """Returns the outcome of an earlier run; None if the item runs now."""
        summary = await self._find_last_rerun(summary)
        execution_id = summary.execution_id
        if summary.status in FINAL_EXECUTION_STATES:
            if summary.status is ExecutionState.COMPLETED or not self._batch.retries_failed:
                return BatchOutcome(item, summary, is_from_earlier_run=True)
            execution_id = await self._client.rerun(execution_id, idempotency_key=RERUN_KEY)
        self._in_flight[execution_id] = item
        return None

    async def _submit(self, items: Sequence[BatchItem]) -> None:
        batch = self._batch
        # `build_items` has checked the inputs.
        inputs = [item.input if self._is_over_http else CheckedInput(item.input) for item in items]
        keys = [batch.make_key(item) for item in items]
        try:
            # A retry has the same idempotency keys, so it can't create a second execution.
            await self._store_retry.run(
                lambda: self._client.submit_many(
                    batch.graph,
                    inputs,
                    labels=self._labels,
                    priority=batch.priority,
                    idempotency_keys=keys,
                ),
                "submit",
            )
        except KeyReusedError as error:
            number = next(
                item.number for item in items if batch.make_execution_id(item) == error.execution_id
            )
            raise InputError(
                f"{batch.names.place.format(number)}: execution {error.execution_id} of the batch "
                f"'{batch.name}' has the same id, but was submitted with {error.difference}; "
                f"give this batch another {batch.names.name_option}, or undo the change"
            ) from error

    async def _find_last_rerun(self, summary: ExecutionSummary) -> ExecutionSummary:
        """Returns the last rerun that the batch made of an execution, or the execution."""
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

    async def _poll_outcomes(self, stop: asyncio.Event) -> list[BatchOutcome]:
        """Waits for a notification, at most 0.2 s; returns the outcomes of ended executions.

        If executions ended in this process, polls only these; if none did, polls all in flight.
        """
        async with asyncio.TaskGroup() as group:
            stopped = group.create_task(self._wake_on_stop(stop))
            await self._clock.wait(self._wakeup, POLL_INTERVAL_S)
            stopped.cancel()
        self._wakeup.clear()
        ended, self._ended = self._ended, []
        ids = ended or ([] if self._began_to_wait else list(self._in_flight))
        outcomes = []
        for first in range(0, len(ids), IDS_PER_LOOKUP):
            summaries = await self._load_summaries(ids[first : first + IDS_PER_LOOKUP])
            for execution_id, summary in summaries.items():
                if summary.status in FINAL_EXECUTION_STATES and execution_id in self._in_flight:
                    self.waiting.pop(execution_id, None)
                    outcomes.append(BatchOutcome(self._in_flight.pop(execution_id), summary))
        if not ended:
            await self._adopt_some()
        if self._can_wait:
            await self._find_waiting()
        return outcomes

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
