"""What a handler is given besides its config: ids, the parents' outputs, a log, a way to stop."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.ids import NO_ITEM
from runnel.core.values import LOG_LINES_MAX, Json, TaskLogLine
from runnel.core.wording import ELLIPSIS
from runnel.errors import TaskCancelledError

LOGGER_PREFIX = "runnel.handler."
# Of a line until its task is reported, when secrets are taken out of it, and then it is cut.
PENDING_LOG_CHARS_MAX = 10_000


class Measurement(msgspec.Struct, frozen=True):
    """`kind` is 'count' (add `value`), 'gauge' (it is now `value`) or 'timing' (seconds)."""

    kind: str
    name: str
    value: float
    labels: dict[str, str]


EmitMeasurement: TypeAlias = Callable[[TaskMessage, Measurement], None]


class TaskValues(Protocol):
    """The values that travel with a task, decoded when they are read and not before."""

    @property
    def parents(self) -> Mapping[str, Json]: ...

    def execution_input(self) -> Json: ...


class TaskMetrics:
    """Measurements of user code, passed on to whatever telemetry the worker has."""

    __slots__ = ("_emit", "_task")

    def __init__(self, task: TaskMessage, emit: EmitMeasurement) -> None:
        self._task = task
        self._emit = emit

    def count(self, name: str, n: float = 1, **labels: str) -> None:
        self._emit(self._task, Measurement("count", name, n, labels))

    def gauge(self, name: str, value: float, **labels: str) -> None:
        self._emit(self._task, Measurement("gauge", name, value, labels))

    def timing(self, name: str, seconds: float, **labels: str) -> None:
        self._emit(self._task, Measurement("timing", name, seconds, labels))


class Context:
    """One attempt as user code sees it; may be read from any thread.

    `soft_timeout` becomes True when soft_timeout_seconds have passed. Async code, and code in a
    process, gets SoftTimeoutError raised as well; a thread can only look at this flag.
    """

    # A context is made for each task and most are hardly read: what costs anything is made on
    # first use (a logger with its ids alone takes 2 µs).
    __slots__ = (
        "_cancelled_event",
        "_emit",
        "_is_cancelled",
        "_lines",
        "_logger",
        "_task",
        "_values",
        "soft_timeout",
    )

    def __init__(self, task: TaskMessage, values: TaskValues, emit: EmitMeasurement) -> None:
        self._task = task
        self._values = values
        self._emit = emit
        self._is_cancelled = False
        self._cancelled_event: asyncio.Event | None = None
        self._logger: TaskLogger | None = None
        self._lines: deque[TaskLogLine] | None = None
        self.soft_timeout = False

    @property
    def inputs(self) -> Mapping[str, Json]:
        """The output of each parent that completed, by its node id."""
        return self._values.parents

    @property
    def execution_input(self) -> Json:
        return self._values.execution_input()

    @property
    def execution_id(self) -> str:
        return self._task.token.execution_id

    @property
    def node_id(self) -> str:
        return self._task.token.node_id

    @property
    def item_index(self) -> int | None:
        """The position in the list of `for_each`; None for a node without one."""
        item = self._task.token.item
        return None if item == NO_ITEM else item

    @property
    def attempt(self) -> int:
        """Counts from 1 and always grows, also after a worker was lost."""
        return self._task.token.attempt

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt: send it along wherever doing a thing twice would hurt."""
        return self._task.token.idempotency_key

    @property
    def workflow(self) -> str:
        return self._task.workflow

    @property
    def handler(self) -> str:
        return self._task.handler

    @property
    def logger(self) -> "TaskLogger":
        if self._logger is None:
            self._logger = self._build_logger(LOGGER_PREFIX + self._task.handler)
        return self._logger

    @property
    def log_lines(self) -> Sequence[TaskLogLine]:
        """The last that were logged, from INFO on, whether the process shows them or not."""
        return () if self._lines is None else tuple(self._lines)

    @property
    def metrics(self) -> TaskMetrics:
        return TaskMetrics(self._task, self._emit)

    @property
    def cancelled(self) -> bool:
        """True once the result is no longer wanted: a timeout, a cancel, or a shutdown."""
        return self._is_cancelled

    def check_cancelled(self) -> None:
        """Raises TaskCancelledError when cancelled: for loops in synchronous code."""
        if self._is_cancelled:
            raise TaskCancelledError(f"the task of node '{self.node_id}' was told to stop")

    async def wait_cancelled(self) -> None:
        """Returns once cancelled; to be awaited on the worker's event loop."""
        if self._is_cancelled:
            return
        if self._cancelled_event is None:
            self._cancelled_event = asyncio.Event()
        await self._cancelled_event.wait()

    def emit(self, measurement: Measurement) -> None:
        self._emit(self._task, measurement)

    def relay_log(self, logger: str, level: int, message: str) -> None:
        """Logs what code in another process has logged, with the ids of this task."""
        self._build_logger(logger).log(level, "%s", message)

    def cancel(self) -> None:
        """Called by the worker, on its event loop."""
        self._is_cancelled = True
        if self._cancelled_event is not None:
            self._cancelled_event.set()

    def _build_logger(self, name: str) -> "TaskLogger":
        if self._lines is None:
            self._lines = deque(maxlen=LOG_LINES_MAX)
        return TaskLogger(logging.getLogger(name), self._ids(), self._lines)

    def _ids(self) -> dict[str, object]:
        return {
            "execution_id": self.execution_id,
            "node_id": self.node_id,
            "item_index": self.item_index,
            "attempt": self.attempt,
        }


class TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the ids of the task to each record, next to what the caller gives as `extra`."""

    def __init__(
        self, logger: logging.Logger, ids: Mapping[str, object], lines: deque[TaskLogLine]
    ) -> None:
        super().__init__(logger, ids)
        self._lines = lines

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Not one frame deeper: a record names the line of user code that logged it."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        super().log(level, msg, *args, **kwargs)
        if level >= logging.INFO:
            self._lines.append(_build_log_line(self.logger.name, level, msg, args))

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


def _build_log_line(name: str, level: int, msg: object, args: tuple[object, ...]) -> TaskLogLine:
    record = logging.LogRecord(name, level, "", 0, msg, args, None)
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001  # the user's text does not fit its values
        text = f"{msg!s} ({type(error).__name__}: {error})"
    # The mark says that half a secret may stand before it.
    held = text if len(text) <= PENDING_LOG_CHARS_MAX else text[:PENDING_LOG_CHARS_MAX] + ELLIPSIS
    return TaskLogLine(record.created, record.levelname.lower(), held)


# The context of a WorkflowDAG's steps: `fn(ctx)` and `condition(ctx)` see earlier outputs, too.

STEP_OUTPUTS = "step_outputs"

ParentIds = Mapping[str, tuple[str, ...]]
"""The ids of the parents of each step."""


class StepContext(dict[str, Any]):
    """The context that `execute` was given, with `step_outputs` added: each step's own copy.

    `task` is the attempt: its number, idempotency key, logger, and whether it was told to stop.
    """

    def __init__(self, context: Mapping[str, Any], outputs: "StepOutputs", task: Context) -> None:
        super().__init__(context)
        self[STEP_OUTPUTS] = outputs
        self.task = task

    @property
    def step_outputs(self) -> "StepOutputs":
        outputs: StepOutputs = self[STEP_OUTPUTS]
        return outputs


class StepOutputs(Mapping[str, Any]):
    """The outputs of the completed steps above this one, by step id; may be read from any thread.

    A step beside this one may or may not have finished: it is never here, so that what a step
    sees does not depend on who was faster. All that is above has settled, so nothing changes.
    """

    __slots__ = ("_ancestors", "_outputs", "_parents", "_step_id")

    def __init__(self, step_id: str, parents: ParentIds, outputs: Mapping[str, Any]) -> None:
        self._step_id = step_id
        self._parents = parents
        self._outputs = outputs
        self._ancestors: dict[str, None] | None = None

    def __getitem__(self, step_id: str) -> Any:
        if step_id in self._parents[self._step_id] or step_id in self._find_ancestors():
            return self._outputs[step_id]
        raise KeyError(step_id)

    def __iter__(self) -> Iterator[str]:
        return (step_id for step_id in self._find_ancestors() if step_id in self._outputs)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<outputs of {', '.join(self) or 'no steps'}>"

    def _find_ancestors(self) -> dict[str, None]:
        """Found when it is asked for: most steps read their parents only, in graphs of any size."""
        if self._ancestors is None:
            ancestors: dict[str, None] = {}
            queue = deque(self._parents[self._step_id])
            while queue:
                step_id = queue.popleft()
                if step_id not in ancestors:
                    ancestors[step_id] = None
                    queue.extend(self._parents[step_id])
            self._ancestors = ancestors
        return self._ancestors
