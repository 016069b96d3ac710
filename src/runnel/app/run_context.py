"""Runs executions in an engine or session that is open, on whichever event loop it is open.

`runnel.Engine` and the functions `runnel.run`, `run_many` and `submit` share this code.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

from runnel.app.embedded_engine import EmbeddedEngine
from runnel.app.run_arguments import RunArguments, RunOptions, RunSource, copy_own_labels
from runnel.app.shared_resource import SharedResource
from runnel.app.stores import StoreSession, build_redis_url
from runnel.authoring.decorators.workflow import TracedWorkflow
from runnel.authoring.input_schema import find_value_problems
from runnel.client.batch import (
    IN_FLIGHT_MAX,
    IN_FLIGHT_PER_SLOT,
    Batch,
    BatchFeeder,
    BatchOptions,
    BatchResult,
    build_batch,
    load_result,
)
from runnel.client.submissions import format_problems
from runnel.core.ids import ExecutionId, get_root_id
from runnel.core.states import ExecutionState
from runnel.core.validation.structure import CHILD_DEPTH_MAX
from runnel.core.values import Json
from runnel.core.workflow import Workflow
from runnel.engine.clock import RandomIdGenerator
from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker.slots import TaskSlot, current_slot
from runnel.errors import (
    EngineEndedError,
    InputError,
    InvalidInputError,
    StoreError,
    WorkflowFailedError,
)
from runnel.ports.store import ExecutionHeader
from runnel.settings.model import Settings

RunContext: TypeAlias = EmbeddedEngine | StoreSession
"""The engine of this process, or a session on servers whose workers run the executions."""
SharedContext: TypeAlias = SharedResource[RunContext]

T = TypeVar("T")

# How often this process checks that the owner of an execution is still alive.
OWNER_POLL_INTERVAL_S = 0.5

# Nesting: a task runs an execution, whose task runs an execution, and so on. The label counts the
# levels, because each execution may run in another process.
NESTING_LABEL = "runnel.nesting"
NESTING_MAX = CHILD_DEPTH_MAX


# The engines that the user has opened in this process.


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEngine:
    """A `runnel.Engine` that is open; a forked child does not have it."""

    shared: SharedContext
    settings: Settings
    pid: int = field(default_factory=os.getpid)


_open: list[OpenEngine] = []
_DEFAULT_DATA_DIR = Settings().data_dir


@contextmanager
def register_engine(shared: SharedContext, settings: Settings) -> Iterator[None]:
    """Makes `runnel.run` and `submit` use the engine inside the block."""
    opened = OpenEngine(shared=shared, settings=settings)
    _open.append(opened)
    try:
        yield
    finally:
        _open.remove(opened)


def find_open_engine(settings: Settings, options: RunOptions) -> SharedContext | None:
    """Returns the open engine on the store of the settings; one of this event loop comes first.

    If neither the call nor the environment names a store, any open engine is used.
    """
    if not _open:
        return None
    candidates = [
        opened.shared
        for opened in _open
        if opened.pid == os.getpid() and _agrees(opened, settings, options)
    ]
    loop = asyncio.get_running_loop()
    candidates.sort(key=lambda shared: shared.loop is not loop)
    return candidates[0] if candidates else None


def _agrees(opened: OpenEngine, settings: Settings, options: RunOptions) -> bool:
    if options.concurrency not in (None, opened.settings.worker_concurrency):
        return False
    names_store = settings.has_redis or settings.data_dir != _DEFAULT_DATA_DIR
    return not names_store or _identify_store(settings) == _identify_store(opened.settings)


def _identify_store(settings: Settings) -> tuple[str, str]:
    if settings.has_redis:
        return build_redis_url(settings), settings.redis_prefix
    return str(settings.data_dir.absolute()), ""


# One execution.


async def run_to_end(shared: SharedContext, arguments: RunArguments) -> bytes:
    """Runs an execution and returns its encoded output; see `runnel.run`."""
    slot = current_slot.get()
    if slot is None:
        return await shared.call(_run(shared, arguments))
    arguments, level = await _add_level(shared, arguments, arguments.workflow.name, slot)
    async with slot.lend(level):
        return await shared.call(_run(shared, arguments))


async def submit_to(shared: SharedContext, arguments: RunArguments) -> ExecutionId:
    return await shared.call(_submit(shared, arguments))


async def store_execution(context: RunContext, arguments: RunArguments) -> ExecutionId:
    return await context.client.submit(
        arguments.workflow,
        arguments.input,
        labels=arguments.labels,
        priority=arguments.priority,
        idempotency_key=arguments.key,
    )


async def wait_for_output(
    shared: SharedContext, execution_id: ExecutionId
) -> tuple[ExecutionHeader, bytes]:
    """Returns the header and the encoded output of an execution once it is final.

    Adopts the execution if another process has started it and is no longer alive. Raises
    EngineEndedError if the engine ends before the execution.
    """
    context = shared.value
    check_not_ended(shared, execution_id)
    with suppress(StoreError, TimeoutError):  # most executions end soon, and need no further task
        return await context.client.wait_for_output(execution_id, timeout_s=OWNER_POLL_INTERVAL_S)
    store_retry = StoreRetry(context.clock, context.event_bus, "runnel.run")
    adopts = isinstance(context, EmbeddedEngine) and not context.adopts_all
    wait = partial(_wait, context, execution_id, OWNER_POLL_INTERVAL_S if adopts else None)
    while True:
        if isinstance(context, EmbeddedEngine):
            await context.adopt_if_free(execution_id)
        outcome = await shared.call_until_ended(store_retry.run(wait, "wait"), execution_id)
        if outcome is not None:
            return outcome


def check_not_ended(shared: SharedContext, execution_id: str = "") -> None:
    if shared.ended.is_set():
        raise EngineEndedError(execution_id, reason=shared.error) from shared.error


def check_completed(header: ExecutionHeader) -> None:
    """Raises WorkflowFailedError if the execution failed or was cancelled."""
    if header.state is not ExecutionState.COMPLETED:
        raise WorkflowFailedError(
            header.execution_id, header.workflow, status=header.state, error=header.error
        )


async def _run(shared: SharedContext, arguments: RunArguments) -> bytes:
    execution_id = await _submit(shared, arguments)
    try:
        header, output = await wait_for_output(shared, execution_id)
    except asyncio.CancelledError:
        _abort_tasks(shared)
        raise
    check_completed(header)
    return output


async def _submit(shared: SharedContext, arguments: RunArguments) -> ExecutionId:
    check_not_ended(shared)
    return await store_execution(shared.value, arguments)


async def _wait(
    context: RunContext, execution_id: ExecutionId, timeout_s: float | None
) -> tuple[ExecutionHeader, bytes] | None:
    try:
        return await context.client.wait_for_output(execution_id, timeout_s=timeout_s)
    except TimeoutError:
        return None


def _abort_tasks(shared: SharedContext) -> None:
    """Stops the tasks of a cancelled call: they run again later, and nothing waits for them now."""
    if isinstance(shared.value, EmbeddedEngine) and shared.has_one_user:
        shared.value.stops.abort.set()


# Tasks that wait for executions.


SourceT = TypeVar("SourceT", RunArguments, Batch)


async def _add_level(
    shared: SharedContext, source: SourceT, workflow: str, slot: TaskSlot
) -> tuple[SourceT, int]:
    """Returns the source with the label of its level of nesting, and the level."""
    level = await shared.call(_choose_nesting_level(shared.value, workflow, slot))
    return replace(source, labels={**source.labels, NESTING_LABEL: str(level)}), level


async def _choose_nesting_level(context: RunContext, workflow: str, slot: TaskSlot) -> int:
    """Returns the level of an execution that a task runs; raises InputError above the maximum."""
    header = await context.backend.archive.get_header(get_root_id(slot.execution_id))
    # An execution in another store counts as the first level.
    labels = {} if header is None else header.labels
    level = _parse_level(labels.get(NESTING_LABEL, "")) + 1
    if level > NESTING_MAX:
        raise InputError(
            f"runnel.run: workflow '{workflow}' would run {level} levels below the "
            f"first execution; expected at most {NESTING_MAX} levels of tasks that wait for "
            "executions. For a loop, let a task submit the next execution with runnel.submit"
        )
    return level


def _parse_level(text: str) -> int:
    """Returns the level of a label. A user's own label, which older versions accepted, is 0."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < len("10000") else 0


# Batches.


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCall:
    """The options of `run_many`; its docstring explains them."""

    name: str | None
    id_field: str | None
    in_flight: int | None
    labels: Mapping[str, str]
    priority: int | None
    retry_failed: bool


async def build_call_batch(
    workflow: object, source: RunSource, inputs: Iterable[Json], call: BatchCall
) -> Batch:
    """Checks the options and all inputs of `run_many`; raises InputError."""
    if source.key is not None:
        raise InputError("run_many: give the batch a name=, instead of run_options(key=...)")
    settings = source.settings
    in_flight = (
        IN_FLIGHT_MAX if settings.has_redis else IN_FLIGHT_PER_SLOT * settings.worker_concurrency
    )
    given = list(inputs)  # an iterator of the user runs in the thread of the caller
    if isinstance(workflow, TracedWorkflow):
        given = _encode_inputs(workflow, source.workflow, given)
    # The check of 100,000 inputs takes seconds, in which the loop has to renew its leases.
    return await asyncio.to_thread(
        build_batch,
        source.workflow,
        given,
        BatchOptions(
            name=call.name,
            id_field=call.id_field,
            in_flight=in_flight if call.in_flight is None else call.in_flight,
            priority=source.priority if call.priority is None else call.priority,
            retry_failed=call.retry_failed,
        ),
        labels={**source.labels, **copy_own_labels(call.labels)},
        default_name=RandomIdGenerator().execution_id(),
    )


def _encode_inputs(
    workflow: TracedWorkflow[..., Any], model: Workflow, inputs: Iterable[Any]
) -> list[Json]:
    """Returns the inputs as JSON, converted by the annotations of the workflow.

    Raises InvalidInputError with the problems of all inputs.
    """
    encoded: list[Json] = []
    problems: list[str] = []
    for index, value in enumerate(inputs):
        is_object = isinstance(value, Mapping)
        try:
            encoded.append(workflow.encode_input(value, f"inputs[{index}]") if is_object else value)
        except InvalidInputError as error:
            problems += error.problems
            encoded.append(None)
    if problems:
        for index, value in enumerate(encoded):
            if value is not None and model.input is not None:
                problems += find_value_problems(model.input, value, where=f"inputs[{index}]")
        raise InvalidInputError(format_problems("inputs", problems), problems=problems)
    return encoded


async def run_batch(shared: SharedContext, batch: Batch) -> AsyncGenerator[BatchResult, None]:
    """Yields the result of each item when its execution has ended.

    Must run on the event loop of the engine; `iter_results` reads it from another one.
    """
    slot, level = current_slot.get(), 0
    check_not_ended(shared)
    if slot is not None:
        batch, level = await _add_level(shared, batch, batch.workflow.name, slot)
    context, count = shared.value, 0
    feeder = BatchFeeder(
        batch,
        context.client,
        context.clock,
        event_bus=context.event_bus,
        adopt=context.adopt_if_free if isinstance(context, EmbeddedEngine) else None,
    )
    async with (
        nullcontext() if slot is None else slot.lend(level),
        aclosing(feeder.run(shared.ended)) as outcomes,
    ):
        try:
            async for outcome in outcomes:
                count += 1
                yield await load_result(context.client, outcome)
        except (asyncio.CancelledError, GeneratorExit):
            # A later call with the same name continues the batch.
            _abort_tasks(shared)
            raise
    if count < len(batch.items):
        check_not_ended(shared)


async def iter_results(
    shared: SharedContext, results: AsyncGenerator[T, None]
) -> AsyncGenerator[T, None]:
    """Yields the items of a generator that runs on the event loop of the engine."""
    try:
        while (item := await shared.call(read_next(results))) is not None:
            yield item
    finally:
        await shared.call(results.aclose())


async def read_next(items: AsyncIterator[T]) -> T | None:
    """Returns the next item; None at the end."""
    return await anext(items, None)
