"""The cache of WorkflowExecutor's steps: computes keys, and keeps results in memory or in a store.

Two steps that run at the same time with the same key both call their function.
"""

import asyncio
import functools
import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import CancelledError
from inspect import iscoroutine
from typing import Any, NamedTuple, Protocol

import msgspec

from runnel.authoring.builder import Step, StepFunction
from runnel.authoring.context import StepContext
from runnel.core.values import find_non_finite
from runnel.engine.worker.outputs import encode_result
from runnel.engine.worker.result_cache import ResultCache
from runnel.errors import InputError
from runnel.ports.clock import Clock
from runnel.ports.store import TaskQueue

# Above this number of results, the result that was used least recently is evicted.
RESULTS_MAX = 1_000
# A step in a thread waits at most this long for the event loop to read the cache. Then it runs as
# without a cache.
READ_S_MAX = 10.0

_encoder = msgspec.json.Encoder(order="deterministic")


class CachedResult(NamedTuple):
    """A result from the cache, which may be None."""

    result: Any


class StepResultCache(Protocol):
    async def get(self, key: str) -> CachedResult | None: ...

    async def put(self, key: str, result: Any, *, ttl_s: float) -> None: ...


class MemoryStepCache:
    """Keeps the objects that functions returned. The executor's event loops share the cache."""

    def __init__(self, clock: Clock, *, results_max: int = RESULTS_MAX) -> None:
        self._clock = clock
        self._results_max = results_max
        self._entries: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._lock = threading.Lock()

    async def get(self, key: str) -> CachedResult | None:
        with self._lock:
            if key not in self._entries:
                return None
            ends_at, result = self._entries[key]
            if ends_at <= self._clock.monotonic():
                del self._entries[key]
                return None
            self._entries.move_to_end(key)
            return CachedResult(result)

    async def put(self, key: str, result: Any, *, ttl_s: float) -> None:
        with self._lock:
            self._entries[key] = self._clock.monotonic() + ttl_s, result
            self._entries.move_to_end(key)
            if len(self._entries) > self._results_max:
                self._entries.popitem(last=False)


class StoredStepCache:
    """Keeps results as JSON in the result cache of a store, beside the results of nodes."""

    def __init__(self, tasks: TaskQueue) -> None:
        self._results = ResultCache(tasks)

    async def get(self, key: str) -> CachedResult | None:
        data = await self._results.get(key)
        return None if data is None else CachedResult(msgspec.json.decode(data))

    async def put(self, key: str, result: Any, *, ttl_s: float) -> None:
        await self._results.put(key, encode_result(result), ttl_s=ttl_s)


def get_from_thread(
    cache: StepResultCache, key: str, *, loop: asyncio.AbstractEventLoop
) -> CachedResult | None:
    """Reads the cache on the event loop of the execution; returns None if the loop is ending."""
    reading = asyncio.run_coroutine_threadsafe(cache.get(key), loop)
    try:
        return reading.result(READ_S_MAX)
    except (TimeoutError, CancelledError):
        reading.cancel()
        return None


def compute_step_key(step: Step, context: StepContext) -> str | None:
    """Returns the hash under which the result of the step is cached, or None without a cache.

    The hash covers the workflow's name, the step's id, the name of its function and the key. An
    exception of the key function is the error of the step. Raises InputError if the key is not
    JSON.
    """
    key = None if step.cache is None else step.cache.key(context)
    if key is None:
        return None
    is_bytes = isinstance(key, bytes)
    scope = [context.task.workflow, step.id, _get_function_name(step.fn), is_bytes]
    return hashlib.sha256(
        _encoder.encode(scope) + (key if is_bytes else _encode_key(key))
    ).hexdigest()


def _encode_key(key: Any) -> bytes:
    expected = "expected the cache key to be text, bytes or a JSON value"
    if iscoroutine(key):
        key.close()
        raise InputError(f"{expected}, got a coroutine")
    try:
        data = _encoder.encode(key)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{expected}: {error}") from error
    non_finite = find_non_finite(key, "key")
    if non_finite is not None:
        path, number = non_finite
        raise InputError(f"{expected}, but {path} is {number}")
    return data


def _get_function_name(function: StepFunction) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}:{named.__qualname__}"
