"""The context that user code receives: ids, outputs of parents, logger, metrics, cancellation."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from math import isfinite
from typing import Any, Protocol, TypeAlias

import msgspec

from runnel.core.effects import TaskMessage
from runnel.core.ids import NO_ITEM
from runnel.core.message_text import ELLIPSIS
from runnel.core.values import LOG_LINES_MAX, Json, TaskLogLine
from runnel.errors import TaskCancelledError

LOGGER_PREFIX = "runnel.handler."
# The worker keeps this many characters of a log line until it reports the task. The report first
# masks secrets, and then cuts the line to its final length.
PENDING_LOG_CHARS_MAX = 10_000


class Measurement(msgspec.Struct, frozen=True):
    """One measurement of user code.

    `kind` is 'count' (add `value`), 'gauge' (set to `value`), 'timing' (`value` in seconds),
    'value' (one value of a histogram), or 'invalid' (the value is not a finite number).
    """

    kind: str
    name: str
    value: float
    labels: dict[str, str]


EmitMeasurement: TypeAlias = Callable[[TaskMessage, Measurement], None]


class TaskValues(Protocol):
    """The values of a task message, which are decoded on first access."""

    @property
    def parents(self) -> Mapping[str, Json]: ...

    def execution_input(self) -> Json: ...


class TaskMetrics:
    """Records metrics of user code: `ctx.metrics.count("pages", 3, source="web")`.

    The worker exports these metrics with its own metrics. Keyword arguments become labels.
    """

    __slots__ = ("_emit", "_task")

    def __init__(self, task: TaskMessage, emit: EmitMeasurement) -> None:
        self._task = task
        self._emit = emit

    def count(self, name: str, n: float = 1, **labels: str) -> None:
        """Adds `n` to a counter."""
        self._record("count", name, n, labels)

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Sets a gauge to `value`."""
        self._record("gauge", name, value, labels)

    def timing(self, name: str, seconds: float, **labels: str) -> None:
        """Records a duration in seconds."""
        self._record("timing", name, seconds, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds a value to a histogram, such as the confidence of an extraction."""
        self._record("value", name, value, labels)

    def _record(self, kind: str, name: str, value: float, labels: Mapping[str, object]) -> None:
        """Emits a measurement that can also be sent by a child process, as JSON."""
        number = _convert_number(value)
        texts = {_make_text(label): _make_text(item) for label, item in labels.items()}
        if number is None:
            kind, number = "invalid", 0.0
        self._emit(self._task, Measurement(kind, _make_text(name), number, texts))


def _make_text(value: object) -> str:
    """Returns a text that UTF-8 can encode. The name of a file may hold other characters."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _convert_number(value: object) -> float | None:
    """Returns a number, such as a Decimal, as a float; None if it is not a finite number."""
    if isinstance(value, str | bytes):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]  # the value may be anything
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


class Context:
    """The attempt that is running: its ids, inputs, logger, metrics and cancellation state.

    The function of a task receives the Context as the parameter `ctx`, a handler as its second
    argument. All attributes can be read from any thread.

    `soft_timeout` becomes True after `soft_timeout_seconds`. In async code and in a child process,
    SoftTimeoutError is raised as well. Code in a thread must poll `soft_timeout`.

        @task
        def resize(path: str, ctx: Context) -> str:
            ctx.logger.info("attempt %s", ctx.attempt)
            ...
    """

    # Each task gets a context, but most code reads few attributes. So expensive attributes are
    # created on first use (a logger with its ids takes 2 µs).
    __slots__ = (
        "_cancelled_event",
        "_emit",
        "_is_cancelled",
        "_lines",
        "_logger",
        "_task",
        "_values",
        "is_cached",
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
        # True if the output is an earlier result, so that the code of this attempt did not run.
        self.is_cached = False

    @property
    def inputs(self) -> Mapping[str, Json]:
        """The outputs of the parents that completed, by node id."""
        return self._values.parents

    @property
    def execution_input(self) -> Json:
        """The input of the whole execution."""
        return self._values.execution_input()

    @property
    def execution_id(self) -> str:
        return self._task.token.execution_id

    @property
    def node_id(self) -> str:
        return self._task.token.node_id

    @property
    def item_index(self) -> int | None:
        """The position of this item in the list of a map (`for_each`); None outside of a map."""
        item = self._task.token.item
        return None if item == NO_ITEM else item

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. Attempts that were lost with a worker count, too."""
        return self._task.token.attempt

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt of this task.

        Send the key with requests that must take effect only once, such as a payment.
        """
        return self._task.token.idempotency_key

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return self._task.workflow

    @property
    def handler(self) -> str:
        return self._task.handler

    @property
    def logger(self) -> "TaskLogger":
        """A logger that adds the ids of this task to each record."""
        if self._logger is None:
            self._logger = self._build_logger(LOGGER_PREFIX + self._task.handler)
        return self._logger

    @property
    def log_lines(self) -> Sequence[TaskLogLine]:
        """The last lines logged at INFO or above, whatever the log level of the process is."""
        return () if self._lines is None else tuple(self._lines)

    @property
    def metrics(self) -> TaskMetrics:
        return TaskMetrics(self._task, self._emit)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Adds a value to a histogram, as `metrics.observe` does."""
        self.metrics.observe(name, value, **labels)

    @property
    def cancelled(self) -> bool:
        """True once the attempt must stop, because of a timeout, a cancellation or a shutdown."""
        return self._is_cancelled

    def check_cancelled(self) -> None:
        """Raises TaskCancelledError if `cancelled` is True; call it in loops of sync code."""
        if self._is_cancelled:
            raise TaskCancelledError(f"the task of node '{self.node_id}' was cancelled")

    async def wait_cancelled(self) -> None:
        """Waits until `cancelled` is True. Only for code on the worker's event loop."""
        if self._is_cancelled:
            return
        if self._cancelled_event is None:
            self._cancelled_event = asyncio.Event()
        await self._cancelled_event.wait()

    def emit(self, measurement: Measurement) -> None:
        self._emit(self._task, measurement)

    def relay_log(self, logger: str, level: int, message: str) -> None:
        """Logs a line that code in a child process has logged, with the ids of this task."""
        self._build_logger(logger).log(level, "%s", message)

    def cancel(self) -> None:
        """Sets `cancelled` to True. The worker calls this method on its event loop."""
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
    """A logger that adds the ids of the task to each record, beside the caller's `extra`."""

    def __init__(
        self, logger: logging.Logger, ids: Mapping[str, object], lines: deque[TaskLogLine]
    ) -> None:
        super().__init__(logger, ids)
        self._lines = lines

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Logs a record with the caller's file and line. Keeps lines of level INFO and above."""
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
    except Exception as error:  # noqa: BLE001  # the user's format string does not fit its arguments
        text = f"{msg!s} ({type(error).__name__}: {error})"
    # The ellipsis marks a cut, so that a secret that was cut in half can be masked later.
    cut = text if len(text) <= PENDING_LOG_CHARS_MAX else text[:PENDING_LOG_CHARS_MAX] + ELLIPSIS
    return TaskLogLine(record.created, record.levelname.lower(), cut)


# The context that `fn(ctx)` and `condition(ctx)` of a WorkflowDAG's step receive. The context also
# has the outputs of earlier steps.

STEP_OUTPUTS = "step_outputs"

ParentIds = Mapping[str, tuple[str, ...]]
"""The parents of each step, by step id."""


class StepContext(dict[str, Any]):
    """The context of one step: a copy of the dict passed to `execute`, plus `step_outputs`.

    `step_outputs` are the outputs of earlier steps by id: `ctx["step_outputs"]["extract"]`. `task`
    is the Context of the attempt: number, idempotency key, logger, cancellation.
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
    """The outputs of the completed ancestors of a step, by step id. Safe to read in any thread.

    The outputs of parallel steps are left out: whether such a step has finished depends on timing.
    All ancestors have settled, so the content never changes.
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
        """Returns the ids of all ancestors of the step.

        The ids are computed on first use, because most steps read the outputs of parents only.
        """
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
