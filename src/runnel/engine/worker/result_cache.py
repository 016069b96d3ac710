"""Results of cached nodes: the key of a result, and what is stored under it."""

import hashlib
from contextlib import suppress

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.values import Json
from runnel.engine.worker.config_templates import compile_config
from runnel.engine.worker.task_values import TaskInputs
from runnel.errors import StoreError
from runnel.ports.store import TaskQueue

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
