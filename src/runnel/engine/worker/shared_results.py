"""Results of earlier tasks, for nodes that have a `cache`: looked up before code runs."""

import hashlib
from contextlib import suppress

import msgspec

from runnel.core.effects import Task
from runnel.core.json_types import Json
from runnel.engine.worker.configs import config_of
from runnel.engine.worker.values import Values
from runnel.errors import StoreError
from runnel.ports.store import TaskQueue

# What is larger is made again: results are meant to be looked up faster than that.
KEPT_BYTES_MAX = 1024 * 1024

_encoder = msgspec.json.Encoder(order="deterministic")


class SharedResults:
    """A store that can't be asked is no reason to fail a task: then its code runs."""

    def __init__(self, tasks: TaskQueue) -> None:
        self._tasks = tasks

    async def recall(self, key: str) -> bytes | None:
        with suppress(StoreError):
            return await self._tasks.recall(key)
        return None

    async def keep(self, key: str, data: bytes, *, ttl_s: float) -> None:
        if len(data) <= KEPT_BYTES_MAX:
            with suppress(StoreError):
                await self._tasks.keep(key, data, ttl_s=ttl_s)


def key_of(task: Task, config: Json, values: Values) -> str:
    """Tasks with the same key have the same result, or so their workflow says.

    Without a key of its own it is all that the code is given. A key is one of the code that it is
    given to: of the handler, or of the function that the handler calls. Raises TemplateError.
    """
    own = config_of(task.cache_key).resolve(values)
    parts = [own, _function(config)] if own is not None else [config, dict(values.parents)]
    data = _encoder.encode([task.handler, own is not None, *parts])
    return hashlib.sha256(data).hexdigest()


def _function(config: Json) -> Json:
    return config.get("function") if isinstance(config, dict) else None
