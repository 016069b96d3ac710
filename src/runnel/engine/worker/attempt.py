"""One attempt from its config to its stored output: resolve, plan, load, run, store."""

from collections.abc import Callable, Iterable
from typing import Protocol

from runnel.authoring.calls import ContextPlace
from runnel.authoring.context import Context, Emit
from runnel.authoring.registry import Handler
from runnel.core.effects import Task
from runnel.core.json_types import Json
from runnel.core.templates import MissingValueError, TemplateEvaluationError
from runnel.core.values import Value
from runnel.engine.blob_cache import BlobCache
from runnel.engine.worker.configs import SECRETS, Config, config_of
from runnel.engine.worker.execute import Executor
from runnel.engine.worker.hiding import output_without_secrets
from runnel.engine.worker.outputs import inline_value, store
from runnel.engine.worker.runs import Run
from runnel.engine.worker.shared_results import SharedResults, key_of
from runnel.engine.worker.values import INPUT, Values
from runnel.ports.secrets import Secrets


class Handlers(Protocol):
    def get(self, name: str) -> Handler:
        """Raises HandlerNotFoundError."""

    async def close(self) -> None:
        """Gives up what handlers keep from task to task; the next task may open it again."""


class Attempts:
    """Whatever goes wrong is raised: it is the error of the task."""

    def __init__(
        self,
        handlers: Handlers,
        blobs: BlobCache,
        executor: Executor,
        results: SharedResults,
        *,
        secrets: Secrets,
        emit: Emit,
        on_suspend: Callable[[Run], None],
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

    async def recall(self, run: Run) -> Value | None:
        """The output of an earlier task with the same cache key; run.cache_key is known then."""
        task = run.task
        values = Values(task)
        config = config_of(task.config)
        roots = {*config.roots, *config_of(task.cache_key).roots, *values.parent_ids()}
        await values.load(roots, self._blobs)
        run.cache_key = key_of(task, self._resolved_for_key(config, values), values)
        data = await self._results.recall(run.cache_key)
        return None if data is None else await self._stored(data, task)

    async def output(self, run: Run) -> Value:
        task = run.task
        handler = self._handlers.get(task.handler)
        values = Values(task)
        config = config_of(task.config)
        has_blobs = values.has_blobs
        if has_blobs and config.roots:
            await self._load(run, values, config.roots)
        call = handler.plan(self._resolved(config, values))
        if has_blobs and call.place is not ContextPlace.NONE:
            await self._load(run, values, (INPUT, *values.parent_ids()))
        context = run.context = Context(task, values, self._emit)
        data = await self._executor.run(run, call, context, values)
        if config.secrets or call.knows_secrets:
            data = output_without_secrets(data, self._secrets)
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

    def _resolved_for_key(self, config: Config, values: Values) -> Json:
        """Without secrets: a key is stored, and what it was made of could be guessed by trying."""
        try:
            return self._resolved(config, values, shows_secrets=False)
        except TemplateEvaluationError:
            if not config.secrets:
                raise
            # `secrets.port | int` fits the value, not the name: the templates and what they read.
            return {**config.template, "": values.found(config.roots - {SECRETS})}

    def _resolved(self, config: Config, values: Values, *, shows_secrets: bool = True) -> Json:
        """Without `shows_secrets` each stands for itself by its name."""
        if not config.secrets:
            return config.resolve(values)
        for name in config.secrets:
            found = self._secrets.get(name)
            if found is not None:
                values.secrets[name] = found if shows_secrets else f"secret {name}"
        try:
            return config.resolve(values)
        except MissingValueError as error:
            if error.path == SECRETS:
                error.problem = (
                    f"this worker has no secret '{error.key}'; set "
                    f"RUNNEL_SECRET_{str(error.key).upper()} where it runs, or add it to the file "
                    "of RUNNEL_SECRETS_FILE"
                )
            raise

    async def _load(self, run: Run, values: Values, roots: Iterable[str]) -> None:
        missing = values.kept_aside(roots)
        if not values.take(missing, self._blobs.peek):
            self._on_suspend(run)
            await values.load(roots, self._blobs)
