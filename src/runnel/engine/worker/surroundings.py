"""What every part of a worker needs of the world around it."""

import msgspec

from runnel.engine.patience import Patience
from runnel.ports.clock import Clock
from runnel.ports.secrets import Secrets
from runnel.ports.store import TaskQueue
from runnel.ports.telemetry import Telemetry


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """`worker` is the name under which the store knows this worker."""

    worker: str
    tasks: TaskQueue
    clock: Clock
    telemetry: Telemetry
    patience: Patience
    secrets: Secrets
