"""One attempt from its config to its stored output: resolve, look up the cache, run, store."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Protocol, TypeAlias

import msgspec

from runnel.authoring.calls import ContextPlace
from runnel.authoring.context import Context, EmitMeasurement
from runnel.authoring.registry import RegisteredHandler
from runnel.core.effects import INPUT, TaskMessage
from runnel.core.templates.errors import (
    MissingValueError,
    TemplateEvaluationError,
    TemplateSyntaxError,
)
from runnel.core.templates.nodes import TemplateReference, TemplateScope
from runnel.core.templates.template import TemplateTree, compile_tree
from runnel.core.values import Json, Value
from runnel.engine.blob_cache import BlobCache
from runnel.engine.worker.executor import Executor
from runnel.engine.worker.outputs import inline_if_small, offload_result, redact_output
from runnel.engine.worker.task_run import TaskRun
from runnel.engine.worker.task_values import TaskInputs
from runnel.errors import StoreError
from runnel.ports.clock import Secrets
from runnel.ports.store import TaskQueue

# A node's config: compiled once for all tasks that share it, resolved for each of them.

COMPILED_CONFIGS_MAX = 1024
COMPILED_CONFIG_BYTES_MAX = 64 * 1024
SECRETS_ROOT = "secrets"

ConfigPath: TypeAlias = tuple[str | int, ...]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class CompiledConfig:
    """Resolving it gives each task values of its own: a handler may change what it gets.

    `secrets` are the names of those that its templates need.
    """

    __slots__ = ("_data", "_static_parts", "_tree", "roots", "secrets")

    def __init__(self, data: bytes) -> None:
        tree = compile_tree(_decode(data))
        self._data = data
        self._tree: TemplateTree | None = None if tree.is_static else tree
        # `TemplateTree.resolve` shares what holds no template: those parts are made anew from
        # bytes.
        self._static_parts = () if tree.is_static else tuple(_find_static_parts(tree.value))
        self.roots = frozenset(reference.root for reference in tree.references)
        self.secrets = frozenset(map(_get_secret_name, filter(_is_secret, tree.references)))

    @property
    def template(self) -> Json:
        """As it was written."""
        return _decode(self._data)

    def resolve(self, scope: TemplateScope) -> Json:
        """Raises a TemplateError that names the field and what is wrong with it."""
        if self._tree is None:
            return _decode(self._data)
        resolved = self._tree.resolve(scope)
        for path, data in self._static_parts:
            holder = resolved
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = _decode(data)
        return resolved


def compile_config(raw: msgspec.Raw) -> CompiledConfig:
    """Raises TemplateSyntaxError, which a submitted workflow can't have any more."""
    data = bytes(raw)
    return _compile_cached(data) if len(data) <= COMPILED_CONFIG_BYTES_MAX else CompiledConfig(data)


# Looking one up takes 0.3 µs, compiling a config with one template 15 µs.
_compile_cached = lru_cache(maxsize=COMPILED_CONFIGS_MAX)(CompiledConfig)


def _is_secret(reference: TemplateReference) -> bool:
    return reference.root == SECRETS_ROOT and not reference.via_nodes


def _get_secret_name(reference: TemplateReference) -> str:
    """Validation says the same at submit; here it keeps all secrets together from being read."""
    if len(reference.path) != 1:
        raise TemplateSyntaxError(f"'{reference}' is not the name of one secret")
    return str(reference.path[0])


def _find_static_parts(value: Json, path: ConfigPath = ()) -> Iterator[tuple[ConfigPath, bytes]]:
    """The largest lists and objects without a template, with their places."""
    if not isinstance(value, dict | list):
        return
    if compile_tree(value).is_static:
        yield path, _encode(value)
        return
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield from _find_static_parts(item, (*path, key))


# Results of earlier tasks, for nodes that have a `cache`: looked up before code runs.

# What is larger is made again: results are meant to be looked up faster than that.
CACHED_RESULT_BYTES_MAX = 1024 * 1024

_encoder = msgspec.json.Encoder(order="deterministic")


class ResultCache:
    """A store that can't be asked is no reason to fail a task: then its code runs."""

    def __init__(self, tasks: TaskQueue) -> None:
        self._tasks = tasks

    async def get(self, key: str) -> bytes | None:
        with suppress(StoreError):
            return await self._tasks.get_cached_result(key)
        return None

    async def put(self, key: str, data: bytes, *, ttl_s: float) -> None:
        if len(data) <= CACHED_RESULT_BYTES_MAX:
            with suppress(StoreError):
                await self._tasks.put_cached_result(key, data, ttl_s=ttl_s)


def compute_cache_key(task: TaskMessage, config: Json, values: TaskInputs) -> str:
    """Tasks with the same key have the same result, or so their workflow says.

    Without a key of its own it is all that the code is given. A key is one of the code that it is
    given to: of the handler, or of the function that the handler calls. Raises TemplateError.
    """
    own = compile_config(task.cache_key).resolve(values)
    parts = [own, _get_function(config)] if own is not None else [config, dict(values.parents)]
    data = _encoder.encode([task.handler, own is not None, *parts])
    return hashlib.sha256(data).hexdigest()


def _get_function(config: Json) -> Json:
    return config.get("function") if isinstance(config, dict) else None


class HandlerLookup(Protocol):
    def get(self, name: str) -> RegisteredHandler:
        """Raises HandlerNotFoundError."""

    async def close(self) -> None:
        """Gives up what handlers keep from task to task; the next task may open it again."""


class AttemptPipeline:
    """Whatever goes wrong is raised: it is the error of the task."""

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
        inline_bytes_max: int,
    ) -> None:
        self._handlers = handlers
        self._blobs = blobs
        self._executor = executor
        self._results = results
        self._secrets = secrets
        self._emit = emit
        self._on_suspend = on_suspend
        self._inline_bytes_max = inline_bytes_max

    async def find_cached_output(self, run: TaskRun) -> Value | None:
        """The output of an earlier task with the same cache key; run.cache_key is known then."""
        task = run.task
        values = TaskInputs(task)
        config = compile_config(task.config)
        roots = {*config.roots, *compile_config(task.cache_key).roots, *values.parent_ids()}
        await values.load(roots, self._blobs)
        run.cache_key = compute_cache_key(task, self._resolve_for_key(config, values), values)
        data = await self._results.get(run.cache_key)
        return None if data is None else await self._to_value(data, task)

    async def produce_output(self, run: TaskRun) -> Value:
        task = run.task
        handler = self._handlers.get(task.handler)
        values = TaskInputs(task)
        config = compile_config(task.config)
        has_blobs = values.has_blobs
        if has_blobs and config.roots:
            await self._load(run, values, config.roots)
        call = handler.plan(self._resolve(config, values))
        if has_blobs and call.place is not ContextPlace.NONE:
            await self._load(run, values, (INPUT, *values.parent_ids()))
        context = run.context = Context(task, values, self._emit)
        data = await self._executor.run(run, call, context, values)
        if config.secrets or call.knows_secrets:
            data = redact_output(data, self._secrets)
        if run.cache_key:
            self._on_suspend(run)
            await self._results.put(run.cache_key, data, ttl_s=task.cache_ttl_s)
        output = inline_if_small(data, self._inline_bytes_max)
        if output is None:
            self._on_suspend(run)
            output = await offload_result(data, task.token, self._blobs)
        return output

    async def _to_value(self, data: bytes, task: TaskMessage) -> Value:
        return inline_if_small(data, self._inline_bytes_max) or await offload_result(
            data, task.token, self._blobs
        )

    def _resolve_for_key(self, config: CompiledConfig, values: TaskInputs) -> Json:
        """Without secrets: a key is stored, and what it was made of could be guessed by trying."""
        try:
            return self._resolve(config, values, shows_secrets=False)
        except TemplateEvaluationError:
            if not config.secrets:
                raise
            # `secrets.port | int` fits the value, not the name: the templates and what they read.
            return {**config.template, "": values.find_existing(config.roots - {SECRETS_ROOT})}

    def _resolve(
        self, config: CompiledConfig, values: TaskInputs, *, shows_secrets: bool = True
    ) -> Json:
        """Without `shows_secrets` each stands for itself by its name."""
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
