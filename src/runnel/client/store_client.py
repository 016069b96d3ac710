"""What callers can ask of Runnel: submit, trigger, cancel, signal, look, wait."""

from collections.abc import Callable, Mapping

import msgspec

from runnel.authoring.input_schema import check_input
from runnel.authoring.payloads import (
    NAME_CHARS_MAX,
    check_labels,
    check_signal_name,
    check_text,
    encode_payload,
    shorten_reason,
)
from runnel.client.definitions import Definitions, Library
from runnel.client.idempotency import (
    Triggers,
    check_same,
    check_same_rerun,
    execution_id_of,
    labels_of,
    trigger_key,
    without_key,
)
from runnel.client.listing import check_filter, check_id, no_execution
from runnel.client.nodes import Nodes
from runnel.client.reruns import Rerun, check_rerunnable, pages_of, take_overs
from runnel.client.values import Carrier
from runnel.core.commands import CancelExecution, CreateExecution, SendSignal, StartExecution
from runnel.core.events import ExecutionCreated
from runnel.core.evolve import definition_of, rebuild, replay
from runnel.core.execution import Execution
from runnel.core.graph import Graph
from runnel.core.ids import DefinitionHash, ExecutionId
from runnel.core.states import EXECUTION_FINAL, ExecutionState
from runnel.core.values import EMPTY_OBJECT, Json
from runnel.core.workflow import ErrorInfo, Workflow
from runnel.errors import NotFoundError, WrongStateError
from runnel.notify.waiter import Ending, Endings, Listen, Told
from runnel.ports import Backend
from runnel.ports.archive import ALL_EXECUTIONS, ExecutionFilter, HeaderPage, StateCount
from runnel.ports.clock import Clock, Ids
from runnel.ports.store import NO_BLOBS, Header, pending_header
from runnel.views.execution import ExecutionView, HistoryView, history_of, view_of

# An execution without a history: its partition's owner has not seen it, or can't make it.


def not_begun(header: Header, graph: Graph) -> Execution:
    """As its header tells of it; without the input, which nobody knows yet."""
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
    execution.error = None if header.error is None else _error(header.error)
    execution.started_at = header.started_at
    execution.finished_at = header.finished_at
    return execution


def _error(text: str) -> ErrorInfo:
    """`str` of it is the text again."""
    type_, _, message = text.partition(": ")
    return ErrorInfo(type=type_, message=message)


# An execution's owner reads what was submitted within milliseconds, if it has an owner.
TAKEN_UP_S = 5.0
TAKEN_UP_LOOK_S = 0.02


class Client:
    """Every call returns after its write is stored; whoever owns the partition acts on it then.

    `ending_of`, `owns` and `listen` say who tells of endings: see `Told`.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        ids: Ids,
        *,
        ending_of: Callable[[str], Ending],
        owns: Callable[[int], bool] = lambda _partition: False,
        listen: Listen | None = None,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._ids = ids
        told = Told(ending_of=ending_of, owns=owns, listen=listen)
        self._endings = Endings(backend.store, clock, told, self.header)
        self._definitions = Definitions(backend.archive, clock)
        self.library = Library(backend.archive, self._definitions)
        self.nodes = Nodes(backend, self.load)
        self._carrier = Carrier(backend.blobs, ids)
        self._triggers = Triggers(backend, clock)

    async def submit(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
    ) -> ExecutionId:
        """Stores the definition (and its children's) and a new execution, started unless held.

        The input of a held one is checked when it is triggered, which may replace it. With a key
        that was used before, the execution of then is returned, and nothing is stored; raises
        KeyReusedError if that was of another definition or input. Of several submits with an
        `execution_id` that the callers have made, the first counts, whatever the others are of.
        """
        begun = await self.begin(
            workflow,
            input_,
            labels=labels,
            is_held=is_held,
            idempotency_key=idempotency_key,
            execution_id=execution_id,
        )
        return begun.execution_id

    async def begin(
        self,
        workflow: Workflow,
        input_: Json = None,
        *,
        labels: Mapping[str, str] | None = None,
        is_held: bool = False,
        idempotency_key: str | None = None,
        execution_id: ExecutionId | None = None,
        version: int | None = None,
    ) -> Header:
        """As `submit`: the header as it was stored, or as it is now if the key was used before.

        With the `version` that it was found by, the definition is not stored: raises NotFoundError
        if it was deleted since, and nothing is begun.
        """
        hash_ = self._definitions.hash_of_valid(workflow)
        kept_labels = check_labels(labels or {})
        data = encode_payload({} if input_ is None else input_, where="input")
        if not is_held:
            _check_input(workflow, data)
        key = idempotency_key
        is_watched = execution_id is None and key is None
        if key is None:
            execution_id = execution_id or ExecutionId(self._ids.execution_id())
        else:
            execution_id = execution_id_of(workflow.name, key)
            kept_labels |= labels_of(key, data)
            known = await self._known(execution_id, key=key, hash_=hash_, labels=kept_labels)
            if known is not None:
                return known
        input_value, blobs = self._carrier.carry(data, f"{execution_id}/input")
        command = CreateExecution(
            execution_id=execution_id,
            workflow=workflow.name,
            definition=hash_,
            version=version or await self._definitions.store(hash_, workflow),
            input=input_value,
            labels=kept_labels,
            is_held=is_held,
            created_at=self._clock.now(),
        )
        if is_watched:
            await self._endings.watch(execution_id)
        await self._backend.mailbox.send([command], blobs=blobs, of_stored=version is not None)
        if version is None:
            await self._definitions.insist(hash_, workflow)
        known = None
        if key is not None:  # somebody else may have been faster
            known = await self._known(execution_id, key=key, hash_=hash_, labels=kept_labels)
        return known or pending_header(command)

    async def _known(
        self,
        execution_id: ExecutionId,
        *,
        key: str,
        hash_: DefinitionHash,
        labels: Mapping[str, str],
    ) -> Header | None:
        header = await self._backend.archive.get_header(execution_id)
        if header is not None:
            check_same(header, key=key, definition=hash_, labels=labels)
        return header

    async def rerun(
        self,
        execution_id: ExecutionId,
        wanted: Rerun | None = None,
        *,
        input_: Json = None,
        idempotency_key: str | None = None,
    ) -> ExecutionId:
        """A new execution that takes over what the finished one settled, and runs the rest.

        With the input of that one, unless another is given. There is one rerun of an execution
        for each key. Raises WrongStateError, NotFoundError, InputError; KeyReusedError when the
        rerun of this key runs other nodes, or has another input or config.
        """
        wanted = wanted or Rerun()
        former = await self.load(execution_id)
        check_rerunnable(former)
        graph = former.graph
        if wanted.is_newest:
            graph = await self._definitions.newest(graph.workflow.name)
        data = None if input_ is None else encode_payload(input_, where="input")
        if graph.workflow.input is not None and (data is not None or wanted.is_newest):
            _check_input(graph.workflow, data or await self._carrier.content(former.input))
        new_id = ExecutionId(self._ids.execution_id())
        labels = without_key(former.labels)
        if idempotency_key is not None:
            new_id = execution_id_of(former.id, idempotency_key)
            labels |= labels_of(idempotency_key, msgspec.json.encode([wanted, input_]))
            known = await self._known_rerun(new_id, idempotency_key, labels)
            # One that is PENDING may lack what a caller who died would have sent next.
            if known is not None and known.state is not ExecutionState.PENDING:
                return new_id
            if known is not None:  # and that was for the version that was the newest then
                graph = await self._definitions.graph(DefinitionHash(known.definition))
        parts = take_overs(former, graph, wanted, new_id, has_input=data is not None)
        if data is None:
            value, blobs = await self._carrier.copied(former.input, new_id)
        else:
            value, blobs = self._carrier.carry(data, f"{new_id}/input")
        command = CreateExecution(
            execution_id=new_id,
            workflow=graph.workflow.name,
            definition=graph.hash,
            version=await self._definitions.store(graph.hash, graph.workflow),
            input=value,
            labels=labels,
            rerun_of=former.id,
            is_held=bool(parts),
            created_at=self._clock.now(),
        )
        if idempotency_key is None:
            await self._endings.watch(new_id)
        async for page, page_blobs in pages_of(command, parts, self._carrier, blobs):
            await self._backend.mailbox.send(page, blobs=page_blobs)
        if idempotency_key is not None:  # somebody else may have been faster
            await self._known_rerun(new_id, idempotency_key, labels)
        return new_id

    async def _known_rerun(
        self, execution_id: ExecutionId, key: str, labels: Mapping[str, str]
    ) -> Header | None:
        header = await self._backend.archive.get_header(execution_id)
        if header is not None:
            check_same_rerun(header, key=key, labels=labels)
        return header

    async def trigger(
        self,
        execution_id: ExecutionId,
        input_: Json = None,
        *,
        idempotency_key: str | None = None,
    ) -> None:
        """Starts a held execution; raises WrongStateError when it is not PENDING.

        Without an input it starts with the one it was submitted with. Called again with the same
        key and input, nothing happens.
        """
        execution = await self.load(execution_id)
        data = None if input_ is None else encode_payload(input_, where="input")
        key = self._ids.nonce()
        if idempotency_key is not None:
            key = trigger_key(idempotency_key, data)
        if await self._triggers.is_repetition(execution, key):
            return
        workflow = execution.graph.workflow
        value, blobs = None, NO_BLOBS
        if data is not None:
            _check_input(workflow, data)
            value, blobs = self._carrier.carry(data, f"{execution_id}/input")
        elif workflow.input is not None:
            _check_input(workflow, await self._submitted_input(execution))
        command = StartExecution(execution_id=execution_id, input=value, key=key)
        await self._backend.mailbox.send([command], blobs=blobs)
        await self._triggers.confirm(execution, key)

    async def cancel(
        self, execution_id: ExecutionId, *, reason: str = "", is_forced: bool = False
    ) -> None:
        """Clean-up nodes still run, unless it `is_forced`; a long reason is cut."""
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
        """The same `signal_id` is taken once; without one, every call is a signal of its own."""
        check_text(name, "the name of a signal", chars_max=NAME_CHARS_MAX)
        id_ = signal_id or self._ids.nonce()
        check_text(id_, "signal_id", chars_max=NAME_CHARS_MAX)
        data = encode_payload(payload, where="payload")
        header = await self._require_unfinished(execution_id, "signalled")
        graph = await self._definitions.graph(DefinitionHash(header.definition))
        check_signal_name(graph.workflow, name)
        value, blobs = self._carrier.carry(data, f"{execution_id}/signal/{id_}")
        command = SendSignal(execution_id=execution_id, name=name, payload=value, signal_id=id_)
        await self._backend.mailbox.send([command], blobs=blobs)

    async def wait(self, execution_id: ExecutionId, *, timeout_s: float | None = None) -> Header:
        """The header once it is final; raises TimeoutError when that takes too long.

        Its children may still clean up then, when it failed or was cancelled: an engine that
        ends now leaves them to the next one. Raises NotFoundError at once for an id that no
        execution has.
        """
        check_id(execution_id)
        return await self._endings.wait(execution_id, timeout_s)

    async def get(self, execution_id: ExecutionId) -> ExecutionView:
        return await view_of(await self.load(execution_id), self._backend.blobs)

    async def list_executions(self, wanted: ExecutionFilter) -> HeaderPage:
        """One page, newest first; raises InputError."""
        check_filter(wanted)
        return await self._backend.archive.list_headers(wanted)

    async def count_executions(
        self, wanted: ExecutionFilter = ALL_EXECUTIONS
    ) -> Mapping[ExecutionState, StateCount]:
        """Raises InputError."""
        check_filter(wanted)
        return await self._backend.archive.count_headers(wanted)

    async def history(self, execution_id: ExecutionId, *, after: int = 0) -> list[HistoryView]:
        """What happened, behind the first `after`; raises NotFoundError.

        Empty before the owner of its partition has seen it.
        """
        check_id(execution_id)
        entries = await self._backend.archive.load(execution_id)
        if not entries:
            await self.header(execution_id)
        return history_of(entries)[after:]

    async def find(self, text: str) -> ExecutionId:
        """The execution that this text names: its id, or the beginning of it if that is unique."""
        check_id(text)
        found = await self._backend.archive.find_ids(text)
        if len(found) > 1 and text not in found:
            raise NotFoundError(
                "single execution", text, hint="several ids begin so, give more characters"
            )
        if not found:
            raise no_execution(text)
        return ExecutionId(text) if text in found else found[0]

    async def load(self, execution_id: ExecutionId) -> Execution:
        """The state as it is stored; raises NotFoundError.

        The history tells it; only of one that has none, or had none a moment ago, a header does.
        """
        check_id(execution_id)
        entries = await self._backend.archive.load(execution_id)
        if not entries:
            header = await self.header(execution_id)
            if header.state is not ExecutionState.PENDING:
                entries = await self._backend.archive.load(execution_id)
            if not entries:
                graph = await self._definitions.graph(DefinitionHash(header.definition))
                return not_begun(header, graph)
        graph = await self._definitions.graph(definition_of(entries))
        return rebuild(entries, graph)

    async def header(self, execution_id: ExecutionId) -> Header:
        check_id(execution_id)
        header = await self._backend.archive.get_header(execution_id)
        if header is None:
            raise no_execution(execution_id)
        return header

    async def _submitted_input(self, held: Execution) -> bytes:
        """As it is stored once the partition's owner has taken the execution up."""
        deadline = self._clock.monotonic() + TAKEN_UP_S
        while True:
            entries = await self._backend.archive.load(held.id)
            execution = replay(entries, lambda _hash: held.graph)
            if execution is not None:
                return await self._carrier.content(execution.input)
            if self._clock.monotonic() > deadline:
                raise WrongStateError(
                    f"execution {held.id}: no process has taken it up, so the input that it was "
                    "submitted with can't be checked; give the input, or try again once one runs"
                )
            await self._clock.sleep(TAKEN_UP_LOOK_S)

    async def _require_unfinished(self, execution_id: ExecutionId, what: str) -> Header:
        header = await self.header(execution_id)
        if header.state in EXECUTION_FINAL:
            raise WrongStateError(
                f"execution {execution_id} is {header.state} already, it can't be {what} any more"
            )
        return header


def _check_input(workflow: Workflow, data: bytes) -> None:
    """Checks what is stored: a tuple is a list by then, a dataclass an object."""
    if workflow.input is not None:
        check_input(workflow, msgspec.json.decode(data))
