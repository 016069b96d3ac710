"""The worker: claims tasks, runs their handlers, reports results. A worker makes no decisions."""

import msgspec

from runnel.engine.store_retry import StoreRetry
from runnel.engine.worker.refusals import TaskRefusals
from runnel.ports.clock import Clock, Secrets
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import Telemetry


class WorkerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """The ports that all parts of a worker share. `worker` is the worker's name in the store.

    `refusals` decides about tasks that the worker can't run.
    """

    worker: str
    tasks: TaskQueue
    clock: Clock
    telemetry: Telemetry
    store_retry: StoreRetry
    secrets: Secrets
    refusals: TaskRefusals
