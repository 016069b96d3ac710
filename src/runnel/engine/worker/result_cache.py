"""The result cache of nodes: computes cache keys, and reads and stores results."""

import hashlib
from contextlib import suppress

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.values import Json
from runnel.engine.worker.config_templates import CompiledConfig, compile_config
from runnel.engine.worker.task_values import TaskInputs
from runnel.errors import StoreError
from runnel.ports.store import TaskQueue

# Larger results are not cached, because reading a result should be faster than computing it.
CACHED_RESULT_BYTES_MAX = 1024 * 1024


_encoder = msgspec.json.Encoder(order="deterministic")


class ResultCache:
    """The result cache in the store.

    If the store can't be reached, the task's code runs as without a cache.
    """

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
    """Returns the cache key of a task.

    The workflow declares that tasks with the same key have the same result.

    If the workflow declares no `cache_key`, the key covers the handler, its resolved config and the
    parents' outputs. A declared key is combined with the name of the handler and of the function
    that it calls. Raises TemplateError if the declared key can't be resolved.
    """
    declared_key = compile_cache_key(task).resolve(values)
    parts = (
        [declared_key, _get_function(config)]
        if declared_key is not None
        else [config, dict(values.parents)]
    )
    data = _encoder.encode([task.handler, declared_key is not None, *parts])
    return hashlib.sha256(data).hexdigest()


def compile_cache_key(task: TaskMessage) -> CompiledConfig:
    return compile_config(task.cache_key, field="cache.key")


def _get_function(config: Json) -> Json:
    return config.get("function") if isinstance(config, dict) else None
