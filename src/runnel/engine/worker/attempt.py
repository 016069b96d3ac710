"""Runs one attempt of a task: resolves its config, queries the cache, runs the code, stores the
output.
"""

from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from runnel.authoring.calls import ContextPlace, FunctionCall, Mode
from runnel.authoring.context import Context, EmitMeasurement
from runnel.authoring.functions import NotImportableError, can_import_elsewhere
from runnel.authoring.registry import RegisteredHandler
from runnel.core.decide.decision_context import NAME_CHARS_MAX, preview_json
from runnel.core.effects import INPUT, TaskMessage
from runnel.core.retry import SUSPECT_LOSSES
from runnel.core.templates.errors import (
    MissingValueError,
    TemplateEvaluationError,
)
from runnel.core.templates.parser import OPENING_PATTERN
from runnel.core.values import Json, Value
from runnel.engine.blob_cache import BlobCache
from runnel.engine.worker.config_templates import (
    COMPILED_CONFIG_BYTES_MAX,
    SECRETS_ROOT,
    CompiledConfig,
    compile_config,
)
from runnel.engine.worker.executor import Executor
from runnel.engine.worker.node_plan import NodePlan, PreparedCall
from runnel.engine.worker.outputs import inline_if_small, offload_result
from runnel.engine.worker.refusals import Refusal
from runnel.engine.worker.result_cache import ResultCache, compile_cache_key, compute_cache_key
from runnel.engine.worker.secret_masking import redact_output
from runnel.engine.worker.task_run import TaskRun
from runnel.engine.worker.task_values import TaskInputs
from runnel.engine.worker.threads import ShortCall
from runnel.errors import NotAllowedError
from runnel.ports.clock import Secrets


class HandlerLookup(Protocol):
    """Finds handlers by name, and closes the resources that they keep."""

    def get(self, name: str) -> RegisteredHandler:
        """Returns the handler of that name.

        Raises HandlerNotFoundError if there is no such handler.
        """

    async def close(self) -> None:
        """Closes the resources that handlers keep between tasks.

        The next task may open these resources again.
        """


class TaskNotRunnableError(Exception):
    """This worker can't run the task, but another worker may be able to. `reason` says why."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(str(reason))
        self.reason = reason


PLANS_MAX = 1024


class AttemptPipeline:
    """Runs one attempt of a task.

    Every exception that an attempt raises is the error of the task.
    """

    def __init__(
        self,
        handlers: HandlerLookup,
        blobs: BlobCache,
        executor: Executor,
        results: ResultCache,
        *,
        secrets: Secrets,
        emit: EmitMeasurement,
        on_suspend: Callable[[TaskRun], None],
        on_suspect: Callable[[TaskRun], Awaitable[None]],
        inline_bytes_max: int,
    ) -> None:
        self._handlers = handlers
        self._blobs = blobs
        self._executor = executor
        self._results = results
        self._secrets = secrets
        self._emit = emit
        self._on_suspend = on_suspend
        self._on_suspect = on_suspect
        self._inline_bytes_max = inline_bytes_max
        self._make_plan_once = lru_cache(maxsize=PLANS_MAX)(self._make_plan)

    async def find_cached_output(self, run: TaskRun) -> Value | None:
        """Returns the output of an earlier task with the same cache key, or None.

        Stores the cache key of the task in `run.cache_key`. The result of a mock is not cached:
        a later run without the mock must call the service.
        """
        task = run.task
        values = TaskInputs(task)
        config = compile_config(task.config)
        roots = {*config.roots, *compile_cache_key(task).roots, *values.parent_ids()}
        await values.load(roots, self._blobs)
        resolved = self._resolve_for_key(config, values)
        if self._handlers.get(task.handler).is_mocked(resolved):
            return None
        run.cache_key = compute_cache_key(task, resolved, values)
        data = await self._results.get(run.cache_key)
        return None if data is None else await self._to_value(data, task)

    async def resolve_resource_tag(self, task: TaskMessage) -> str:
        """Returns the name of the token bucket that the attempt counts against.

        Raises TemplateError if the resource tag can't be evaluated to a name.
        """
        source = task.resource_tag or ""
        if not OPENING_PATTERN.search(source):
            return source
        template = compile_config(msgspec.json.encode(source), field="resource_tag")
        values = TaskInputs(task)
        await values.load(template.roots, self._blobs)
        tag = template.resolve(values)
        name = str(tag) if type(tag) in (str, int) else ""
        if 0 < len(name) <= NAME_CHARS_MAX:
            return name
        expected = f"a number or a text of 1 to {NAME_CHARS_MAX} characters"
        raise TemplateEvaluationError(
            f"expected {expected}, got {preview_json(tag)}", template=source, where="resource_tag"
        )

    async def check_runnable(self, task: TaskMessage) -> None:
        """Raises TaskNotRunnableError if this worker can't run the task."""
        handler, config = self._handlers.get(task.handler), compile_config(task.config)
        values = TaskInputs(task)
        await values.load(config.roots, self._blobs)
        _plan(handler, self._resolve(config, values))

    def find_plan(self, task: TaskMessage) -> NodePlan:
        """Returns the plan of the task; raises HandlerNotFoundError and TemplateSyntaxError."""
        data = bytes(task.config)
        if len(data) > COMPILED_CONFIG_BYTES_MAX:
            return self._make_plan(task.handler, data)
        return self._make_plan_once(task.handler, data)

    async def prepare(self, run: TaskRun, plan: NodePlan) -> PreparedCall:
        """Resolves the arguments. A suspect waits until it may run."""
        task, config = run.task, plan.config
        values = TaskInputs(task)
        has_blobs = values.has_blobs
        if has_blobs and config.roots:
            await self._load(run, values, config.roots)
        call = _plan(plan.handler, self._resolve(config, values))
        if task.losses >= SUSPECT_LOSSES:
            call = _isolate(run, call)
            await self._on_suspect(run)
        if has_blobs and call.place is not ContextPlace.NONE:
            await self._load(run, values, (INPUT, *values.parent_ids()))
        context = run.context = Context(task, values, self._emit)
        return PreparedCall(run, plan, call, context, values)

    async def execute(self, prepared: PreparedCall) -> Value:
        """Makes the call and returns its output."""
        data = await self._executor.run(prepared)
        return self.finish_at_once(prepared, data) or await self._store(prepared, data)

    def make_short_call(self, prepared: PreparedCall) -> ShortCall:
        return self._executor.make_short_call(prepared)

    def finish_at_once(self, prepared: PreparedCall, result: Any) -> Value | None:
        """Returns the output of a short call; None if `finish` has to wait for it."""
        if not isinstance(result, bytes) or prepared.run.cache_key:
            return None
        return inline_if_small(self._mask(prepared, result), self._inline_bytes_max)

    async def finish(self, prepared: PreparedCall, result: Any) -> Value:
        """Returns the output of a call in a thread."""
        return await self._store(prepared, await self._executor.finish(prepared, result))

    def _make_plan(self, handler: str, data: bytes) -> NodePlan:
        return NodePlan(self._handlers.get(handler), compile_config(data))

    def _mask(self, prepared: PreparedCall, data: bytes) -> bytes:
        return redact_output(data, self._secrets) if prepared.masks_secrets else data

    async def _store(self, prepared: PreparedCall, data: bytes) -> Value:
        run = prepared.run
        data = self._mask(prepared, data)
        if run.cache_key:
            self._on_suspend(run)
            await self._results.put(run.cache_key, data, ttl_s=run.task.cache_ttl_s)
        output = inline_if_small(data, self._inline_bytes_max)
        if output is None:
            self._on_suspend(run)
            output = await offload_result(data, run.token, self._blobs)
        return output

    async def _to_value(self, data: bytes, task: TaskMessage) -> Value:
        return inline_if_small(data, self._inline_bytes_max) or await offload_result(
            data, task.token, self._blobs
        )

    def _resolve_for_key(self, config: CompiledConfig, values: TaskInputs) -> Json:
        """Resolves the config without secrets.

        The store keeps a hash of the result as cache key, from which a short secret could be
        guessed.
        """
        try:
            return self._resolve(config, values, shows_secrets=False)
        except TemplateEvaluationError:
            if not config.secrets:
                raise
            # A template such as `secrets.port | int` accepts the value but not the placeholder.
            # In that case, the key consists of the templates and of the values that they read.
            return {**config.template, "": values.find_existing(config.roots - {SECRETS_ROOT})}

    def _resolve(
        self, config: CompiledConfig, values: TaskInputs, *, shows_secrets: bool = True
    ) -> Json:
        """Resolves the config. Without `shows_secrets`, a placeholder replaces each secret."""
        if not config.secrets:
            return config.resolve(values)
        for name in config.secrets:
            secret = self._secrets.get(name)
            if secret is not None:
                values.secrets[name] = secret if shows_secrets else f"secret {name}"
        try:
            return config.resolve(values)
        except MissingValueError as error:
            if error.path == SECRETS_ROOT:
                error.problem = (
                    f"this worker has no secret '{error.key}'; set "
                    f"RUNNEL_SECRET_{str(error.key).upper()} where it runs, or add it to the file "
                    "of RUNNEL_SECRETS_FILE"
                )
            raise

    async def _load(self, run: TaskRun, values: TaskInputs, roots: Iterable[str]) -> None:
        missing = values.find_unloaded(roots)
        if not values.take_cached(missing, self._blobs.peek):
            self._on_suspend(run)
            await values.load(roots, self._blobs)


def _plan(handler: RegisteredHandler, config: Json) -> FunctionCall:
    try:
        return handler.plan(config)
    except (NotAllowedError, NotImportableError) as error:
        raise TaskNotRunnableError(error) from error


def _isolate(run: TaskRun, call: FunctionCall) -> FunctionCall:
    """Returns the call of a suspect for a child process, so that its death kills no other task.

    Returns the call unchanged if a child process can't import its function.
    """
    if call.mode is Mode.PROCESS:
        run.is_in_child = True
        return call
    if call.knows_secrets or not can_import_elsewhere(call.function):
        return call
    run.is_in_child = run.is_isolated = True
    return replace(call, mode=Mode.PROCESS)
