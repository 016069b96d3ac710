"""The client over a store: submits, triggers, cancels, signals, reads and waits."""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from runnel.authoring.payloads import (
    NAME_CHARS_MAX,
    check_labels,
    check_priority,
    check_signal_name,
    check_text,
    encode_payload,
    shorten_reason,
)
from runnel.client.definitions import DefinitionCache, WorkflowLibrary
from runnel.client.execution_lists import (
    check_execution_id,
    check_filter,
    choose_by_prefix,
    execution_not_found_error,
)
from runnel.client.protocol import ITEMS_PAGE_SIZE
from runnel.client.values import CHECKED_LABEL, PayloadStorage
from runnel.core.commands import CancelExecution, CreateExecution, SendSignal, StartExecution
from runnel.core.events import ExecutionCreated
from runnel.core.evolve import find_last_end, read_definition_hash, rebuild_execution, replay
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.retry import ErrorInfo
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import EMPTY_OBJECT
from runnel.errors import WrongStateError
from runnel.notify.waiter import ExecutionWaiter
from runnel.ports.archive import ALL_EXECUTIONS
from runnel.ports.store import NO_BLOBS, make_pending_header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from runnel.client.bulk import StoreBulk
    from runnel.client.dead_letters import StoreDeadLetters
    from runnel.client.reruns import RerunSpec
    from runnel.client.values import ValueWithBlobs
    from runnel.client.whole_values import StoreValues
    from runnel.core.values import Json
    from runnel.core.workflow import Workflow
    from runnel.engine.graph_cache import GraphCache
    from runnel.notify.feed_reader import FeedReader
    from runnel.notify.waiter import Completion
    from runnel.ports import Backend
    from runnel.ports.archive import ExecutionFilter
    from runnel.ports.clock import Clock, IdGenerator
    from runnel.ports.store import ExecutionHeader
    from runnel.views.execution import ExecutionSummary, ExecutionView, HistoryEvent, StateCount
    from runnel.views.node import NodeDetail
    from runnel.views.page import Page

# An execution has no history until the owner of its partition has read its submit command. If the
# owner can't create the execution, it never has a history.


def build_unstarted_execution(header: ExecutionHeader, graph: Graph) -> Execution:
    """Returns an execution without history, built from its header; its input is not known yet."""
    created = ExecutionCreated(
        execution_id=header.execution_id,
        workflow=header.workflow,
        version=header.version,
        definition=graph.hash,
        input=EMPTY_OBJECT,
        labels=header.labels,
        rerun_of=header.rerun_of,
        created_at=header.created_at,
    )
    execution = Execution(created, graph)
    execution.state = header.state
    execution.error = None if header.error is None else _parse_error(header.error)
    execution.started_at = header.started_at
    execution.finished_at = header.finished_at
    return execution


def _parse_error(text: str) -> ErrorInfo:
    """Returns the ErrorInfo from a text that `str(ErrorInfo)` has formatted."""
    type_, _, message = text.partition(": ")
    return ErrorInfo(type=type_, message=message)


# The maximum wait for the first read of a submitted execution. If the partition has an owner, the
# owner reads it within milliseconds.
PICKUP_TIMEOUT_S = 5.0
PICKUP_POLL_INTERVAL_S = 0.02
_NO_OUTPUT = b"null"


class StoreClient:
    """The client over a store. A call returns once its command is stored.

    After that, the owner of the partition executes the command. `get_completion` and `owns` are for
    executions that this process runs: see `ExecutionWaiter`. `feed_reader` reports changes of
    executions that other processes run; without `feed_reader`, the client polls them.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        ids: IdGenerator,
        *,
        get_completion: Callable[[str], Completion],
        owns: Callable[[int], bool] = lambda _partition: False,
        feed_reader: FeedReader | None = None,
        graphs: GraphCache | None = None,
        mocks_services: bool = False,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._ids = ids
        self._feed_reader = feed_reader
        self._waiter = ExecutionWaiter(
            backend.store,
            clock,
            self.get_header,
            get_completion=get_completion,
            owns=owns,
            listen=None if feed_reader is None else partial(feed_reader.listen, ends_only=True),
        )
        self._mocks_services = mocks_services
        self._definitions = DefinitionCache(
            backend.archive, clock, graphs, mocks_services=mocks_services
        )
        self.library = WorkflowLibrary(backend, self._definitions, clock)
        self._payloads = PayloadStorage(backend.blobs, ids)

    @cached_property
    def dead_letters(self) -> StoreDeadLetters:
        from runnel.client.dead_letters import StoreDeadLetters

        return StoreDeadLetters(self, self._backend.archive, self._clock)

    @cached_property
    def many(self) -> StoreBulk:
        from runnel.client.bulk import StoreBulk

        return StoreBulk(self, self._backend.archive, self._backend.mailbox)

    @cached_property
    def values(self) -> StoreValues:
        from runnel.client.whole_values import StoreValues

        return StoreValues(self, self._backend)

    async def submit(
        self,
        workflow: Workflow | Graph,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
    ) -> ExecutionId:
        """Stores a new execution, and the definitions of its workflow and of child workflows.

        A second call with the same key stores nothing and returns the execution of the first call.
        The second call raises KeyReusedError if its definition or input differs. A caller may give
        its own `execution_id`; a second submit with the same id has no effect.
        """
        header = await self.create_execution(
            self._definitions.add(workflow) if isinstance(workflow, Graph) else workflow,
            input_,
            labels=labels,
            priority=priority,
            idempotency_key=idempotency_key,
            execution_id=execution_id,
        )
        return header.execution_id

    async def submit_many(
        self,
        workflow: Workflow | Graph,
        inputs: Sequence[Json],
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_keys: Sequence[str] | None = None,
    ) -> list[ExecutionId]:
        """Starts an execution for each of at most 1,000 inputs; returns the ids in their order.

        Raises InvalidInputError with the problems of all inputs, before anything is stored. An
        input with a known key is not started again. Raises KeyReusedError if the definition or the
        input of a known key differs; then nothing is stored either.
        """
        headers = await self.create_executions(
            self._definitions.add(workflow) if isinstance(workflow, Graph) else workflow,
            inputs,
            labels=labels,
            priority=priority,
            idempotency_keys=idempotency_keys,
        )
        return [header.execution_id for header in headers]

    async def create_executions(
        self,
        workflow: Workflow,
        inputs: Sequence[Json],
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_keys: Sequence[str] | None = None,
        version: int | None = None,
    ) -> list[ExecutionHeader]:
        """Creates executions as `submit_many` does; returns their current headers.

        With `version`, the definition is not stored again, as in `create_execution`.
        """
        from runnel.client.submissions import ExecutionCreator

        creator = ExecutionCreator(
            self._backend, self._definitions, self._payloads, self._clock, self._ids
        )
        return await creator.create(
            workflow,
            inputs,
            labels=labels or {},
            priority=priority,
            keys=idempotency_keys,
            version=version,
        )

    async def hold(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Stores a held execution, which starts when `trigger` is called.

        `trigger` validates the input, and may replace it.
        """
        header = await self.create_execution(
            workflow,
            input_,
            labels=labels,
            priority=priority,
            is_held=True,
            idempotency_key=idempotency_key,
        )
        return header.execution_id

    async def create_execution(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        priority: int | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
        version: int | None = None,
    ) -> ExecutionHeader:
        """Creates an execution, unless one with the same key exists; returns its current header.

        With `version`, the definition is not stored again; raises NotFoundError if that version was
        deleted. None is stored as `{}`.
        """
        hash_ = self._definitions.validate_and_hash(workflow)
        kept_labels = check_labels(labels or {})
        data, stored, is_fit = await self._payloads.prepare_input(workflow, input_, is_held=is_held)
        if is_held and is_fit:
            kept_labels[CHECKED_LABEL] = "input"
        is_watched = execution_id is None and idempotency_key is None
        find_known: Callable[[], Awaitable[ExecutionHeader | None]] | None = None
        if idempotency_key is None:
            execution_id = execution_id or ExecutionId(self._ids.execution_id())
        else:
            from runnel.client import idempotency

            execution_id = idempotency.derive_execution_id(workflow.name, idempotency_key)
            kept_labels |= idempotency.build_key_labels(idempotency_key, data)
            archive, key = self._backend.archive, idempotency_key
            find_known = partial(
                idempotency.find_execution_of_key, archive, execution_id, key, kept_labels, hash_
            )
            known = await find_known()
            if known is not None:
                return known
        input_value, blobs = self._payloads.to_value(stored, f"{execution_id}/input")
        command = CreateExecution(
            execution_id=execution_id,
            workflow=workflow.name,
            definition=hash_,
            version=version or await self._definitions.store(hash_, workflow),
            input=input_value,
            labels=kept_labels,
            priority=check_priority(priority),
            is_held=is_held,
            created_at=self._clock.now(),
        )
        if is_watched:
            await self._waiter.watch(execution_id)
        await self._backend.mailbox.send(
            [command], blobs=blobs, requires_definition=version is not None
        )
        if version is None:
            await self._definitions.store_again_if_deleted(hash_, workflow)
        known = None if find_known is None else await find_known()  # another caller was first
        return known or make_pending_header(command)

    async def rerun(
        self,
        execution_id: ExecutionId,
        options: RerunSpec | None = None,
        *,
        input: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """Creates an execution that reuses settled nodes of a final one, and runs all other nodes.

        The new execution has the same input, unless `input` is given. An execution has one rerun
        for each key. Raises WrongStateError, NotFoundError and InputError. Raises KeyReusedError if
        the rerun of this key has other nodes, configs or another input.

        The rerun replaces the dead letters of the final execution: it runs their tasks. With
        another input, it does other work, and the letters stay.
        """
        from runnel.client.dead_letters import delete_execution_letters

        former = await self.load(execution_id)
        is_same_input = input is None or await self._has_input(former, input)
        new_id = await self._create_rerun(
            former,
            options,
            input=input,
            is_same_input=is_same_input,
            idempotency_key=idempotency_key,
        )
        if is_same_input:
            await delete_execution_letters(self._backend.archive, execution_id)
        return new_id

    async def _has_input(self, former: Execution, input_: Json) -> bool:
        """Returns True if the input, with the defaults of its schema, is that of the execution."""
        data = encode_payload(input_, where="input")
        data = await self._payloads.complete_input(former.graph.workflow, data, is_checked=True)
        former_data = await self._payloads.load(former.input)
        return bool(msgspec.json.decode(data) == msgspec.json.decode(former_data))

    async def _create_rerun(
        self,
        former: Execution,
        options: RerunSpec | None,
        *,
        input: Json,
        is_same_input: bool,
        idempotency_key: str | None,
    ) -> ExecutionId:
        from runnel.client import idempotency, reruns

        find_known = partial(idempotency.find_execution_of_key, self._backend.archive)
        options = options or reruns.RerunSpec()
        reruns.check_rerunnable(former)
        data = None if input is None else encode_payload(input, where="input")
        graph, stored = await self._choose_rerun_input(former, data, is_newest=options.is_newest)
        new_id = ExecutionId(self._ids.execution_id())
        labels = reruns.build_labels(former, is_same_input=is_same_input)
        if idempotency_key is not None:
            new_id = idempotency.derive_execution_id(former.id, idempotency_key)
            content = msgspec.json.encode([options, input])
            labels |= idempotency.build_key_labels(idempotency_key, content)
            known = await find_known(new_id, idempotency_key, labels)
            # A PENDING rerun may be incomplete, because its caller may have died between two
            # messages.
            if known is not None and known.state is not ExecutionState.PENDING:
                return new_id
            if known is not None:  # the newest version may have changed since the first call
                graph = await self._definitions.load_graph(DefinitionHash(known.definition))
        parts = reruns.build_take_overs(
            former,
            graph,
            options,
            new_id,
            has_input=data is not None,
            mocks_services=self._mocks_services,
        )
        value, blobs = await self._copy_or_store_input(former, stored, new_id)
        command = CreateExecution(
            execution_id=new_id,
            workflow=graph.workflow.name,
            definition=graph.hash,
            version=await self._definitions.store(graph.hash, graph.workflow),
            input=value,
            labels=labels,
            priority=former.priority,
            rerun_of=former.id,
            is_held=bool(parts),
            created_at=self._clock.now(),
        )
        if idempotency_key is None:
            await self._waiter.watch(new_id)
        async for page, page_blobs in reruns.iter_command_pages(
            command, parts, self._payloads, blobs
        ):
            await self._backend.mailbox.send(page, blobs=page_blobs)
        if idempotency_key is not None:  # a concurrent caller may have been first
            await find_known(new_id, idempotency_key, labels)
        return new_id

    async def _copy_or_store_input(
        self, former: Execution, stored: bytes | None, execution_id: ExecutionId
    ) -> ValueWithBlobs:
        """Returns the input of a rerun; a copy of the former input if `stored` is None."""
        if stored is None:
            return await self._payloads.copy_value(former.input, execution_id)
        return self._payloads.to_value(stored, f"{execution_id}/input")

    async def _choose_rerun_input(
        self, former: Execution, data: bytes | None, *, is_newest: bool
    ) -> tuple[Graph, bytes | None]:
        """Returns the graph of a rerun, and its input with defaults; None for the former input.

        Raises InvalidInputError if a new input does not fit the graph, or if the former input does
        not fit another graph.
        """
        graph = former.graph
        if is_newest:
            graph = await self._definitions.load_newest_graph(graph.workflow.name)
        workflow = graph.workflow
        if data is not None:
            return graph, await self._payloads.complete_input(workflow, data)
        if workflow.input is None:
            return graph, None
        former_data = await self._payloads.load(former.input)
        stored = await self._payloads.complete_input(
            workflow, former_data, is_checked=not is_newest
        )
        return graph, None if stored is former_data else stored

    async def trigger(
        self,
        execution_id: ExecutionId,
        input_: Json = None,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        """Starts a held execution; raises WrongStateError if it is not PENDING.

        By default, the execution keeps the input of `hold`. A repeated call with the same key and
        input has no effect.
        """
        from runnel.client.idempotency import TriggerGuard, build_trigger_key

        guard = TriggerGuard(self._backend, self._clock)
        execution = await self.load(execution_id)
        data = None if input_ is None else encode_payload(input_, where="input")
        key = self._ids.nonce()
        if idempotency_key is not None:
            key = build_trigger_key(idempotency_key, data)
        if await guard.is_repetition(execution, key):
            return
        workflow = execution.graph.workflow
        value, blobs = None, NO_BLOBS
        held_data: bytes | None = None
        if data is None and workflow.input is not None and CHECKED_LABEL not in execution.labels:
            held_data = data = await self._load_submitted_input(execution)
        if data is not None:
            stored = await self._payloads.complete_input(workflow, data)
            if stored is not held_data:
                value, blobs = self._payloads.to_value(stored, f"{execution_id}/input")
        command = StartExecution(execution_id=execution_id, input=value, key=key)
        await self._backend.mailbox.send([command], blobs=blobs)
        await guard.confirm(execution, key)

    async def cancel(
        self, execution_id: ExecutionId, *, reason: str = "", is_forced: bool = False
    ) -> None:
        """Cancels an execution. Its clean-up nodes still run, unless `is_forced` is true.

        A long reason is shortened.
        """
        kept_reason = shorten_reason(reason) or "cancelled by request"
        await self._require_unfinished(execution_id, "cancelled")
        command = CancelExecution(
            execution_id=execution_id, reason=kept_reason, is_forced=is_forced
        )
        await self._backend.mailbox.send([command])

    async def signal(
        self,
        execution_id: ExecutionId,
        name: str,
        payload: Json = None,
        *,
        signal_id: str | None = None,
    ) -> None:
        """Sends a signal; a repeated `signal_id` has no effect.

        Without `signal_id`, every call counts.
        """
        check_text(name, "the name of a signal", chars_max=NAME_CHARS_MAX)
        id_ = signal_id or self._ids.nonce()
        check_text(id_, "signal_id", chars_max=NAME_CHARS_MAX)
        data = encode_payload(payload, where="payload")
        header = await self._require_unfinished(execution_id, "signalled")
        graph = await self._definitions.load_graph(DefinitionHash(header.definition))
        check_signal_name(graph.workflow, name)
        value, blobs = self._payloads.to_value(data, f"{execution_id}/signal/{id_}")
        command = SendSignal(execution_id=execution_id, name=name, payload=value, signal_id=id_)
        await self._backend.mailbox.send([command], blobs=blobs)

    async def wait(
        self, execution_id: ExecutionId, *, timeout_s: float | None = None
    ) -> ExecutionView:
        """Waits until the execution is final, as `wait_for_end` does, and returns it."""
        await self.wait_for_end(execution_id, timeout_s=timeout_s)
        return await self.get(execution_id)

    async def wait_for_end(
        self, execution_id: ExecutionId, *, timeout_s: float | None = None
    ) -> ExecutionHeader:
        """Waits until the execution is final, and returns its header.

        When a failed or cancelled execution is final, its children may still run their clean-up
        nodes. If the engine stops then, the next engine resumes the children. Raises TimeoutError
        after `timeout_s`, and NotFoundError at once for an unknown id.
        """
        check_execution_id(execution_id)
        return (await self._waiter.wait(execution_id, timeout_s))[0]

    async def wait_for_output(
        self, execution_id: ExecutionId, *, timeout_s: float | None = None
    ) -> tuple[ExecutionHeader, bytes]:
        """Waits as `wait_for_end` does; returns the header and the encoded output.

        Of the history, only the last event is used. The output is `null` unless the execution
        completed.
        """
        check_execution_id(execution_id)
        header, end = await self._waiter.wait(execution_id, timeout_s)
        if header.state is not ExecutionState.COMPLETED:
            return header, _NO_OUTPUT
        if end is None:
            end = find_last_end(await self._backend.archive.load(execution_id))
        output = None if end is None else end.output
        return header, _NO_OUTPUT if output is None else await self._payloads.load(output)

    async def node(
        self,
        execution_id: ExecutionId,
        node_id: str,
        *,
        item: int | None = None,
        items_after: int = -1,
        items_limit: int = ITEMS_PAGE_SIZE,
    ) -> NodeDetail:
        """Returns a node, or one item of a map, with its attempts, config, inputs, output and logs.

        A map also has one page of its items: those after the item number `items_after`.
        """
        from runnel.client.nodes import read_node

        return await read_node(
            self._backend,
            await self.load(execution_id),
            node_id,
            item=item,
            items_after=items_after,
            items_limit=items_limit,
        )

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        from runnel.client.execution_views import load_execution_view

        return await load_execution_view(await self.load(execution_id), self._backend.blobs)

    async def list_executions(self, criteria: ExecutionFilter) -> Page[ExecutionSummary]:
        """Returns one page of executions, newest first; raises InputError."""
        from runnel.client.execution_views import build_execution_summary
        from runnel.views.page import Page

        check_filter(criteria)
        page = await self._backend.archive.list_headers(criteria)
        return Page(items=[build_execution_summary(header) for header in page], next=page.next)

    async def count_executions(
        self, criteria: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        """Counts the executions in each state; stops counting a state at a maximum.

        Raises InputError.
        """
        from runnel.views.execution import StateCount

        check_filter(criteria)
        counts = await self._backend.archive.count_headers(criteria)
        return {
            state: StateCount(number=count.number, is_least=count.is_least)
            for state, count in counts.items()
        }

    async def history(self, execution_id: ExecutionId, *, after: int = 0) -> list[HistoryEvent]:
        """Returns the events of an execution without the first `after` events.

        Raises NotFoundError.

        The list is empty until the owner of the partition has created the execution.
        """
        from runnel.views.execution import decode_history

        check_execution_id(execution_id)
        entries = await self._backend.archive.load(execution_id)
        if not entries:
            await self.get_header(execution_id)
        return decode_history(entries)[after:]

    async def find(self, text: str) -> ExecutionId:
        """Returns the execution id that equals the text, or the only id that begins with it."""
        check_execution_id(text)
        return choose_by_prefix(text, await self._backend.archive.find_ids(text))

    async def summaries(self, ids: Sequence[ExecutionId]) -> Mapping[ExecutionId, ExecutionSummary]:
        """Returns the summaries of the executions that exist, by id."""
        from runnel.client.execution_views import build_execution_summary

        headers = await self._backend.archive.get_headers(ids)
        return {id_: build_execution_summary(header) for id_, header in headers.items()}

    async def follow(
        self, execution_id: ExecutionId, *, after: int = 0
    ) -> AsyncIterator[HistoryEvent]:
        """Yields the events of an execution as they are stored, until the execution is final.

        Skips the first `after` events. Raises NotFoundError.
        """
        from runnel.notify.history_reader import HistoryReader, follow_history

        check_execution_id(execution_id)
        reader = HistoryReader(self._backend.archive, execution_id, self.get_header)
        number = 0
        async for event in follow_history(reader, execution_id, self._feed_reader, self._clock):
            number += 1
            if number > after:
                yield event

    async def load(self, execution_id: ExecutionId) -> Execution:
        """Returns the execution, built from its history, or from its header if it has no history.

        Raises NotFoundError.
        """
        check_execution_id(execution_id)
        entries = await self._backend.archive.load(execution_id)
        if not entries:
            header = await self.get_header(execution_id)
            if header.state is not ExecutionState.PENDING:
                entries = await self._backend.archive.load(execution_id)
            if not entries:
                graph = await self._definitions.load_graph(DefinitionHash(header.definition))
                return build_unstarted_execution(header, graph)
        graph = await self._definitions.load_graph(read_definition_hash(entries))
        return rebuild_execution(entries, graph)

    async def get_header(self, execution_id: ExecutionId) -> ExecutionHeader:
        check_execution_id(execution_id)
        header = await self._backend.archive.get_header(execution_id)
        if header is None:
            raise execution_not_found_error(execution_id)
        return header

    async def _load_submitted_input(self, held: Execution) -> bytes:
        """Waits until the partition's owner has created the execution; returns its input."""
        deadline = self._clock.monotonic() + PICKUP_TIMEOUT_S
        while True:
            entries = await self._backend.archive.load(held.id)
            execution = replay(entries, lambda _hash: held.graph)
            if execution is not None:
                return await self._payloads.load(execution.input)
            if self._clock.monotonic() > deadline:
                raise WrongStateError(
                    f"execution {held.id}: no process has created it yet, so its input can't be "
                    "checked; give the input again, or start a process and try again"
                )
            await self._clock.sleep(PICKUP_POLL_INTERVAL_S)

    async def _require_unfinished(self, execution_id: ExecutionId, action: str) -> ExecutionHeader:
        header = await self.get_header(execution_id)
        if header.state in FINAL_EXECUTION_STATES:
            raise WrongStateError(
                f"execution {execution_id} is {header.state} and can't be {action} any more"
            )
        return header
