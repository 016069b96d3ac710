"""The worker: claims tasks, runs their handlers, reports; it decides nothing and keeps nothing."""

import msgspec

from runnel.engine.store_retry import StoreRetry
from runnel.ports.clock import Clock, Secrets
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import Telemetry


class WorkerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """`worker` is the name under which the store knows this worker."""

    worker: str
    tasks: TaskQueue
    clock: Clock
    telemetry: Telemetry
    store_retry: StoreRetry
    secrets: Secrets
