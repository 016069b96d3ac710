"""The owner and only writer of a partition: reads a batch of commands, decides them, commits
once.
"""

import asyncio
import traceback
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from runnel.core.agenda import Agenda
from runnel.core.commands import (
    BlobLoaded,
    CancelExecution,
    ChildSettled,
    Command,
    CreateExecution,
    FailExecution,
    LimitCommand,
    LimitGranted,
    OutputStored,
    ReleaseLimit,
    ResumeExecution,
    TaskStopped,
    TimerFired,
    ValuesShared,
)
from runnel.core.concurrency_key import decide_limit
from runnel.core.decide import create, decide
from runnel.core.decide.decision_context import DecisionInputs
from runnel.core.effects import (
    NOTHING,
    DeadLetter,
    Decision,
    LoadBlob,
    PostCommitEffect,
    PutDeadLetter,
    SendCommand,
    ShareValues,
    StoreOutput,
)
from runnel.core.ids import NO_ITEM, ExecutionId, NodeId, NodeRef, Nonce, TaskToken, get_root_id
from runnel.core.retry import MESSAGE_CHARS_MAX, TRACEBACK_CHARS_MAX, ErrorInfo
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.core.values import BLOB_BYTES_MAX, Value, make_blob_reference
from runnel.engine.blob_cache import RetryingBlobCache
from runnel.engine.graph_cache import GraphCache
from runnel.engine.orchestrator import OrchestratorDependencies, adapt_policy
from runnel.engine.orchestrator.aggregates import (
    AggregateCache,
    CachedExecutionsLimit,
    LoadedExecution,
)
from runnel.engine.orchestrator.batch import CommitBatch, build_header
from runnel.errors import InputError, NewerFormatError, PayloadError, StoreError
from runnel.ports import telemetry as names
from runnel.ports.store import InboxEntry, Lease, TimerRecord
from runnel.ports.telemetry import LETTER_WRITTEN, Telemetry


def make_parent_failure(command: Command, error: ErrorInfo) -> Decision:
    """Returns the decision that fails the parent's node if `command` could not create its child.

    Without this decision, the parent would wait for ever. Returns NOTHING if the execution has no
    parent.
    """
    if not isinstance(command, CreateExecution) or command.parent is None:
        return NOTHING
    settled = ChildSettled(
        token=command.parent,
        child_id=command.execution_id,
        state=ExecutionState.FAILED,
        error=error,
    )
    return Decision(effects=[SendCommand(settled)])


def describe_error(error: Exception) -> ErrorInfo:
    """Returns the error in the form that an execution stores.

    An InputError keeps its type and message. Every other error is described as a bug of Runnel.
    """
    if isinstance(error, InputError):
        return ErrorInfo(type=type(error).__name__, message=_format_message(error), retryable=False)
    trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARS_MAX:]
    message = (
        f"deciding raised {type(error).__name__}: {_format_message(error)}; this is a bug of Runnel"
    )
    return ErrorInfo(
        type="InternalError", message=message, retryable=False, traceback=_escape_surrogates(trace)
    )


def _format_message(error: Exception) -> str:
    return _escape_surrogates(str(error)[:MESSAGE_CHARS_MAX])


def _escape_surrogates(text: str) -> str:
    """Escapes unpaired surrogates.

    Unpaired surrogates can't be stored, and may be the cause of the error.
    """
    return text.encode("utf-8", "backslashreplace").decode()


def make_dead_letter(execution_id: str, handler: str, error: ErrorInfo, now: float) -> DeadLetter:
    return DeadLetter(
        token=TaskToken(ExecutionId(execution_id), NodeId(""), NO_ITEM, 0, Nonce("")),
        queue="inbox",
        handler=handler,
        config=msgspec.Raw(b"null"),
        error=error,
        reason="the command could not be decided",
        rejected_at=now,
    )


def report_batch(telemetry: Telemetry, batch: CommitBatch) -> None:
    """Reports a committed batch to telemetry."""
    for aggregate_id, events in batch.events.items():
        changed = batch.changed.get(aggregate_id)
        header = build_header(changed) if changed is not None and changed.is_final else None
        graph = batch.graphs.get(aggregate_id)
        telemetry.committed(aggregate_id, batch.now, events, header, graph)
    for header in batch.headers:
        telemetry.committed(header.execution_id, batch.now, (), header, None)
    for letter in batch.dead_letters:
        token = letter.token
        telemetry.event(
            LETTER_WRITTEN,
            queue=letter.queue,
            workflow=letter.workflow,
            execution_id=token.execution_id,
            node_id=token.node_id,
            item=None if token.item == NO_ITEM else token.item,
            reason=letter.reason,
        )


TIMERS_MAX = 256
# The most ticks of one `drain`, because an inbox is never empty under steady traffic.
DRAIN_TICKS_MAX = 100
# Commands that may arrive again for an execution that exists.
_REPEATABLE = frozenset({CreateExecution, ResumeExecution})
# How often decisions may request the same blob without producing an event.
BLOB_LOADS_MAX = 20


class PartitionOwner:
    """Decides and commits all commands of one partition while it holds the lease.

    All of its state can be dropped and loaded again from the store.
    """

    def __init__(
        self,
        dependencies: OrchestratorDependencies,
        graphs: GraphCache,
        lease: Lease,
        cached: CachedExecutionsLimit,
    ) -> None:
        self.lease = lease
        self._dependencies = dependencies
        self._graphs = graphs
        self._sequence = lease.sequence
        self._policy = adapt_policy(dependencies)
        self._blobs = RetryingBlobCache(
            dependencies.blobs, dependencies.clock, dependencies.telemetry
        )
        self._aggregates = AggregateCache(
            dependencies.store,
            graphs,
            self._blobs,
            limit=cached,
        )
        self._pending: deque[Command] = deque()
        self._loads: dict[str, dict[str, int]] = {}
        self._is_halted = False
        self.recreated: set[ExecutionId] = set()
        """Executions whose CreateExecution command arrived again.

        A recovery has to inspect these executions too.
        """
        self._reading: asyncio.Task[None] | None = None
        self._is_woken = False
        self._now = 0.0
        self._batch = CommitBatch(self._advance_time(), self._dependencies.store.limits)
        self._inputs = self._make_inputs()

    async def run(self) -> None:
        """Processes batches until halted. Raises StoreError if the partition has to be given up."""
        while not self._is_halted:
            await self.tick(self._dependencies.idle_s_max)

    def halt(self) -> None:
        """Ends `run` after the current batch. Interrupts a wait for inbox entries at once."""
        self._is_halted = True
        self._wake()

    def close(self) -> None:
        """Frees the place of this partition's executions in memory for other partitions."""
        self._aggregates.close()

    def _wake(self) -> None:
        # Cancels only once, because `_read` would mistake a second cancellation for one by its
        # caller.
        if self._reading is not None and not self._is_woken:
            self._is_woken = True
            self._reading.cancel()

    async def tick(self, wait_s: float) -> int:
        """Decides and commits one batch of due timers and inbox entries; returns their number."""
        timers = await self._due_timers()
        is_busy = bool(timers or self._pending)
        entries = await self._read(0 if is_busy else await self._bound_by_timers(wait_s))
        pending, self._pending = self._pending, deque()
        await self.prefetch(
            dict.fromkeys([entry.command.aggregate_id for entry in entries if entry.command])
        )
        self._begin_batch()
        self._aggregates.is_settled = False
        for command in pending:
            await self._handle(command)
            if self._batch.is_full:
                await self._commit()
        for timer in timers:
            await self._fire(timer)
        for entry in entries:
            if entry.command is None:
                self._quarantine_message(entry)
            else:
                await self._handle(entry.command)
            self._batch.consumed = entry.position
            if self._batch.is_full:
                await self._commit()
        await self._commit()
        self._aggregates.settle()
        return len(pending) + len(timers) + len(entries)

    async def drain(self) -> None:
        """Ticks until the partition is idle, at most DRAIN_TICKS_MAX times."""
        for _ in range(DRAIN_TICKS_MAX):
            if not await self.tick(0):
                return

    async def submit(self, commands: list[Command]) -> None:
        """Decides and commits commands of this process at once. The recovery uses this method."""
        self._pending.extend(commands)
        await self.tick(0)

    def enqueue(self, commands: Iterable[Command]) -> None:
        """Adds commands to the next batch and starts that batch at once.

        Services such as the watchdog use this method.
        """
        self._pending.extend(commands)
        self._wake()

    async def read_executions(self, execution_ids: Sequence[ExecutionId]) -> list[LoadedExecution]:
        """Returns the current state of executions, from memory if possible and else from the
        store.
        """
        return await self._aggregates.read_snapshots(execution_ids)

    async def prefetch(self, aggregate_ids: Iterable[str]) -> None:
        """Loads the executions that the next batch needs, in one store call."""
        await self._aggregates.prefetch(aggregate_ids)

    async def in_flight(self, execution_id: ExecutionId) -> dict[TaskToken, bool]:
        """Returns the tokens of the execution's issued tasks, each with True if the task has
        started.
        """
        loaded = await self._aggregates.execution(execution_id)
        return {} if loaded is None else loaded.execution.list_in_flight_tokens()

    async def _read(self, wait_s: float) -> Sequence[InboxEntry]:
        self._reading = asyncio.current_task() if wait_s else None
        try:
            return await self._dependencies.store.read_inbox(
                self.lease, limit=self._dependencies.store.limits.commands, wait_s=wait_s
            )
        except asyncio.CancelledError:
            if not self._is_woken or self._reading is None or self._reading.uncancel():
                raise
            self._is_woken = False
            return ()
        finally:
            self._reading = None

    # -- one command ---------------------------------------------------------------------------

    async def _fire(self, timer: TimerRecord) -> None:
        key = timer.key
        self._batch.timers[key] = None
        ref = NodeRef(key.execution_id, key.node_id, key.item)
        await self._handle(TimerFired(ref=ref, kind=key.kind, attempt=timer.attempt))
        if self._batch.is_full:
            await self._commit()

    async def _handle(self, command: Command) -> None:
        """Decides a command together with all commands to this partition that its decision
        causes.
        """
        self._batch.commands += 1
        following = [command]
        for current in following:
            try:
                decision = await self._decide(current)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - a bug must not stop the partition
                decision = await self._quarantine_command(current, error)
            for effect in decision.effects:
                if type(effect) is SendCommand:
                    await self._route_command(current.aggregate_id, effect.command, following)

    async def _decide(self, command: Command) -> Decision:
        aggregate_id = command.aggregate_id
        loaded = self._aggregates.get_cached(aggregate_id)
        if loaded is None:
            if isinstance(command, LimitCommand):
                return await self._decide_limit(aggregate_id, command)
            loaded = await self._aggregates.execution(aggregate_id)
        if loaded is not None:
            execution = loaded.execution
            decision = decide(execution, loaded.agenda, command, self._inputs)
            if type(command) in _REPEATABLE:
                # The store may have lost the commit that changed the header, so this commit writes
                # the header again.
                self._batch.changed[execution.id] = execution
                if isinstance(command, CreateExecution):
                    self.recreated.add(execution.id)
        elif isinstance(command, CreateExecution):
            graph = await self._graphs.get(command.definition)
            agenda = Agenda()
            execution, decision = create(command, graph, agenda, self._inputs)
            self._aggregates.add(execution, agenda)
        else:
            return _decide_without_execution(command)
        self._batch.add(aggregate_id, decision, execution)
        if decision.events and self._loads:
            self._loads.pop(aggregate_id, None)
        return decision

    async def _decide_limit(self, aggregate_id: str, command: LimitCommand) -> Decision:
        limit = await self._aggregates.limit(aggregate_id)
        decision = decide_limit(limit, command)
        self._batch.add(aggregate_id, decision, None)
        if limit.is_empty:
            self._batch.closed[aggregate_id] = None
        else:
            self._batch.closed.pop(aggregate_id, None)
        return decision

    async def _route_command(self, sender: str, command: Command, following: list[Command]) -> None:
        """Adds a command to `following` if its target is in this partition, and else to the
        messages.

        An execution and its children are in one partition; a concurrency key may be in another.
        """
        target = command.aggregate_id
        is_same_tree = get_root_id(ExecutionId(target)) == get_root_id(ExecutionId(sender))
        if is_same_tree or await self._dependencies.store.route(target) == self.lease.partition:
            following.append(command)
            if isinstance(command, CancelExecution):
                self._batch.cancels.append(command)
        else:
            self._batch.messages.append(command)

    # -- failures ------------------------------------------------------------------------------

    async def _quarantine_command(self, command: Command, error: Exception) -> Decision:
        """Quarantines the command as a dead letter and fails its execution.

        The state of the aggregate in memory is unknown after the error. The owner commits all
        earlier decisions first and then loads the aggregate again.
        """
        aggregate_id = command.aggregate_id
        info = describe_error(error)
        self._dependencies.telemetry.event(
            names.COMMAND_POISONED, aggregate=aggregate_id, error=str(info), trace=info.traceback
        )
        await self._commit()
        self._aggregates.forget(aggregate_id)
        letter = make_dead_letter(aggregate_id, type(command).__name__, info, self._inputs.now)
        self._batch.dead_letters.append(letter)
        try:
            decision = await self._fail_execution(ExecutionId(aggregate_id), info)
        except StoreError:
            raise
        except Exception as again:  # noqa: BLE001 - the execution can't even be loaded
            self._dependencies.telemetry.event(
                names.COMMAND_POISONED, aggregate=aggregate_id, error=str(again)
            )
            decision = None
        if decision is None and not isinstance(error, NewerFormatError):
            await self._list_as_failed(ExecutionId(aggregate_id), info)
            decision = make_parent_failure(command, info)
        return decision or NOTHING

    async def _list_as_failed(self, execution_id: ExecutionId, error: ErrorInfo) -> None:
        """Marks the header of an execution without a readable history as FAILED.

        Without this, lists would show the execution as running.
        """
        header = await self._dependencies.archive.get_header(execution_id)
        if header is not None and header.state not in FINAL_EXECUTION_STATES:
            failed = msgspec.structs.replace(
                header,
                state=ExecutionState.FAILED,
                finished_at=self._batch.now,
                error=str(error),
            )
            self._batch.headers.append(failed)

    async def _fail_execution(self, execution_id: ExecutionId, error: ErrorInfo) -> Decision | None:
        """Fails an execution; returns the decision, or None if nothing of the execution is
        stored.
        """
        execution = await self._aggregates.load_without_map_items(execution_id)
        if execution is None:
            return None
        command = FailExecution(execution_id=execution_id, error=error)
        decision = decide(execution, Agenda(), command, self._inputs)
        self._batch.add(execution_id, decision, execution)
        return decision

    def _quarantine_message(self, entry: InboxEntry) -> None:
        self._dependencies.telemetry.event(names.MESSAGE_UNREADABLE, problem=entry.problem)
        info = ErrorInfo(type="UnreadableMessage", message=entry.problem, retryable=False)
        body = msgspec.Raw(msgspec.json.encode(entry.body.decode(errors="replace")))
        letter = make_dead_letter("", "inbox", info, self._inputs.now)
        decision = Decision(effects=[PutDeadLetter(msgspec.structs.replace(letter, config=body))])
        self._batch.add("", decision, None)

    # -- committing ----------------------------------------------------------------------------

    async def _commit(self) -> None:
        batch = self._batch
        if batch.is_empty and not batch.post_commit_effects:
            return
        if not batch.is_empty:
            for commit in batch.seal(self._sequence + 1):
                await self._dependencies.store.commit(self.lease, commit)
                self._sequence += 1
            self._after_commit(batch)
        self._begin_batch()
        self._pending.extend(TaskStopped(token=token) for token in batch.never_issued)
        for effect in batch.post_commit_effects:
            await self._run_post_commit_effect(effect)

    def _after_commit(self, batch: CommitBatch) -> None:
        report_batch(self._dependencies.telemetry, batch)
        for execution in batch.changed.values():
            if execution.is_final:
                self._aggregates.forget(execution.id)
                self._loads.pop(execution.id, None)
        for aggregate_id in batch.closed:
            self._aggregates.forget(aggregate_id)

    async def _run_post_commit_effect(self, effect: PostCommitEffect) -> None:
        """Reads or writes a blob after a commit.

        A new command carries the result into the next batch.
        """
        try:
            self._pending.append(await self._perform_effect(effect))
        except InputError as error:
            info = describe_error(error)
            self._pending.append(FailExecution(execution_id=_get_execution_id(effect), error=info))

    async def _perform_effect(self, effect: PostCommitEffect) -> Command:
        if isinstance(effect, LoadBlob):
            self._check_spinning(effect)
            await self._blobs.get(effect.key)
            return BlobLoaded(execution_id=effect.execution_id)
        if isinstance(effect, ShareValues):
            return await self._share(effect)
        parts = [await self._read_bytes(part) for part in effect.parts]
        is_list = effect.ref.node_id != ""
        data = b"[" + b",".join(parts) + b"]" if is_list else parts[0]
        if len(data) > BLOB_BYTES_MAX:
            raise PayloadError(
                f"the output has {len(data):,} bytes, at most {BLOB_BYTES_MAX:,} are allowed"
            )
        await self._dependencies.blobs.put(effect.key, data)
        return OutputStored(ref=effect.ref, output=make_blob_reference(effect.key, len(data)))

    async def _share(self, effect: ShareValues) -> ValuesShared:
        shared = {
            name: make_blob_reference(effect.make_key(name), value.size)
            for name, value in effect.values.items()
        }
        for name, value in effect.values.items():
            await self._dependencies.blobs.put(effect.make_key(name), await self._read_bytes(value))
        return ValuesShared(execution_id=effect.execution_id, values=shared)

    def _check_spinning(self, effect: LoadBlob) -> None:
        """Raises PayloadError if the decision needs more large values than the cache holds.

        Without this check, such a decision would request the same blobs for ever.
        """
        loads = self._loads.setdefault(effect.execution_id, {})
        loads[effect.key] = loads.get(effect.key, 0) + 1
        if loads[effect.key] > BLOB_LOADS_MAX:
            raise PayloadError(
                "a decision needs more large outputs at once than fit into memory: refer to "
                "fewer of them in conditions, for_each and output"
            )

    async def _read_bytes(self, value: Value) -> bytes:
        return bytes(value.data) if value.blob is None else await self._blobs.get(value.blob)

    # -- time ----------------------------------------------------------------------------------

    async def _due_timers(self) -> list[TimerRecord]:
        due = await self._dependencies.store.next_due(self.lease)
        now = self._advance_time()
        if due is None or due > now:
            return []
        return list(await self._dependencies.store.due_timers(self.lease, now, limit=TIMERS_MAX))

    async def _bound_by_timers(self, wait_s: float) -> float:
        due = await self._dependencies.store.next_due(self.lease)
        return wait_s if due is None else max(0.0, min(wait_s, due - self._now))

    def _advance_time(self) -> float:
        """Returns the current time.

        The returned time never runs backwards, even if the clock does.
        """
        self._now = max(self._now, self._dependencies.clock.now())
        return self._now

    def _begin_batch(self) -> None:
        self._batch = CommitBatch(self._advance_time(), self._dependencies.store.limits)
        self._inputs = self._make_inputs()

    def _make_inputs(self) -> DecisionInputs:
        nonce = Nonce(self._dependencies.ids.nonce())
        return DecisionInputs(self._batch.now, nonce, self._blobs, self._policy)


def _decide_without_execution(command: Command) -> Decision:
    """Releases a concurrency key granted to a missing execution, and tells a parent that its child
    does not run; ignores every other command.
    """
    if isinstance(command, LimitGranted):
        return Decision(effects=[SendCommand(ReleaseLimit(key=command.key, holder=command.holder))])
    if isinstance(command, CancelExecution) and command.awaited_by is not None:
        settled = ChildSettled(
            token=command.awaited_by,
            child_id=command.execution_id,
            state=ExecutionState.CANCELLED,
        )
        return Decision(effects=[SendCommand(settled)])
    return NOTHING


def _get_execution_id(effect: PostCommitEffect) -> ExecutionId:
    return effect.ref.execution_id if isinstance(effect, StoreOutput) else effect.execution_id
