"""One attempt from its config to its stored output: resolve, plan, load, run, store."""

from collections.abc import Callable, Iterable
from typing import Protocol

from runnel.authoring.calls import ContextPlace
from runnel.authoring.context import Context, Emit
from runnel.authoring.registry import Handler
from runnel.core.effects import Task
from runnel.core.values import Value
from runnel.engine.worker.configs import config_of
from runnel.engine.worker.execute import Executor
from runnel.engine.worker.outputs import inline_value, store
from runnel.engine.worker.runs import Run
from runnel.engine.worker.shared_results import SharedResults, key_of
from runnel.engine.worker.values import INPUT, Values
from runnel.ports.blobs import BlobStore


class Handlers(Protocol):
    def get(self, name: str) -> Handler:
        """Raises HandlerNotFoundError."""


class Attempts:
    """Whatever goes wrong is raised: it is the error of the task."""

    def __init__(
        self,
        handlers: Handlers,
        blobs: BlobStore,
        executor: Executor,
        results: SharedResults,
        *,
        emit: Emit,
        on_suspend: Callable[[Run], None],
        inline_bytes_max: int,
    ) -> None:
        self._handlers = handlers
        self._blobs = blobs
        self._executor = executor
        self._results = results
        self._emit = emit
        self._on_suspend = on_suspend
        self._inline_bytes_max = inline_bytes_max

    async def recall(self, run: Run) -> Value | None:
        """The output of an earlier task with the same cache key; run.cache_key is known then."""
        task = run.task
        values = Values(task)
        config = config_of(task.config)
        roots = {*config.roots, *config_of(task.cache_key).roots, *values.parent_ids()}
        await values.load(roots, self._blobs)
        run.cache_key = key_of(task, config.resolve(values), values)
        data = await self._results.recall(run.cache_key)
        return None if data is None else await self._stored(data, task)

    async def output(self, run: Run) -> Value:
        task = run.task
        handler = self._handlers.get(task.handler)
        values = Values(task)
        config = config_of(task.config)
        has_blobs = values.has_blobs
        if has_blobs and values.kept_aside(config.roots):
            await self._load(run, values, config.roots)
        call = handler.plan(config.resolve(values))
        if has_blobs and call.place is not ContextPlace.NONE:
            await self._load(run, values, (INPUT, *values.parent_ids()))
        context = run.context = Context(task, values, self._emit)
        data = await self._executor.run(run, call, context, values)
        if run.cache_key:
            self._on_suspend(run)
            await self._results.keep(run.cache_key, data, ttl_s=task.cache_ttl_s)
        output = inline_value(data, self._inline_bytes_max)
        if output is None:
            self._on_suspend(run)
            output = await store(data, task.token, self._blobs)
        return output

    async def _stored(self, data: bytes, task: Task) -> Value:
        return inline_value(data, self._inline_bytes_max) or await store(
            data, task.token, self._blobs
        )

    async def _load(self, run: Run, values: Values, roots: Iterable[str]) -> None:
        self._on_suspend(run)
        await values.load(roots, self._blobs)
