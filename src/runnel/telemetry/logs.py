"""Writes telemetry events to the log, as JSON or as text, with secrets masked."""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Literal

import msgspec

from runnel.core import events as e
from runnel.core.effects import TaskMessage
from runnel.core.events import AnyEvent
from runnel.core.graph import Graph
from runnel.core.ids import NO_ITEM, TaskToken, format_node_name
from runnel.core.states import FINAL_EXECUTION_STATES, ExecutionState
from runnel.ports import telemetry as names
from runnel.ports.store import ExecutionHeader
from runnel.ports.telemetry import NullTelemetry
from runnel.telemetry.redaction import Redactor, TextMask

# The log level of each event. A warning needs the attention of an operator; an error needs action.

_ERROR_EVENTS = (names.ARCHIVE_SET_ASIDE, names.ARCHIVE_FENCED, names.ARCHIVE_GAP)
_WARNING_EVENTS = (
    names.COMMAND_POISONED,
    names.MESSAGE_UNREADABLE,
    names.PARTITION_LOST,
    names.STORE_FAILED,
    names.SERVER_AWAITED,
    names.THREAD_ABANDONED,
    # The task ran twice, or it ended after its execution had ended.
    names.REPORT_REFUSED,
    names.ARCHIVE_LATE,
    names.WORKER_DEAD,
    names.ORCHESTRATOR_DEAD,
    names.TASKS_UNSERVED,
    names.TASK_HANDED_BACK,
    names.WORKERS_MISSING,
    names.EXECUTION_REPAIRED,
    names.INBOX_STALE,
    names.EXECUTION_FAILED,
    names.SETTING_UNKNOWN,
    names.SCHEDULE_MISSED,
    names.SCHEDULE_FAILED,
    names.WEBHOOK_REFUSED,
)
_DEBUG_EVENTS = (
    names.TASK_STARTED,
    names.TASK_LOST,
    names.HANDLER_METRIC,
    names.NODE_SETTLED,
    names.EXECUTION_STARTED,
)
LEVELS: Mapping[str, int] = {
    **dict.fromkeys(_ERROR_EVENTS, logging.ERROR),
    **dict.fromkeys(_WARNING_EVENTS, logging.WARNING),
    **dict.fromkeys(_DEBUG_EVENTS, logging.DEBUG),
}


def get_level(name: str) -> int:
    return LEVELS.get(name, logging.INFO)


# Events as sentences, for the log of a program and for the command line. Each sentence ends with
# what to do, if there is something to do. The logs of server roles have the names of events.
_SENTENCES: Mapping[str, str] = {
    names.THREAD_ABANDONED: "execution {execution_id}, node '{node}': the code did not stop "
    "({reason}). Python can't end its thread, which runs until its function returns. Let the "
    "function check 'ctx.cancelled', make it async, or use mode=\"process\"",
    names.STORE_FAILED: "the store does not respond: {error}. Runnel tries again",
    names.REPORT_REFUSED: "execution {execution_id}, node '{node}': the result of attempt "
    "{attempt} was not used, because the task also ran elsewhere or its execution had ended",
    names.PARTITION_LOST: "partition {partition}: this process no longer owns it ({error}). Its "
    "next owner resumes the executions",
    names.COMMAND_POISONED: "execution {aggregate}: a message could not be processed: {error}. See "
    "it with: runnel dlq list",
    names.MESSAGE_UNREADABLE: "a stored message can't be read: {problem}. See it with: runnel dlq "
    "list",
    names.TASK_HANDED_BACK: "execution {execution_id}, node '{node}': this process can't run the "
    "task and leaves it to others: {problem}",
    names.EXECUTION_FAILED: "execution {execution_id} of workflow '{workflow}' failed: {error}. "
    "See it with: runnel show {execution_id}",
    names.SETTING_UNKNOWN: "{problem}",
}
# Credentials in URLs, and values with names like "password", are masked in every program.
_DEFAULT_REDACTOR = Redactor()


class EventMessage:
    """An event as text. The text is built when the record is written, not when it is logged."""

    def __init__(self, name: str, fields: Mapping[str, object]) -> None:
        self._name = name
        self._fields = fields

    def __str__(self) -> str:
        redact = _DEFAULT_REDACTOR.redact_value
        fields = {key: redact(key, value) for key, value in self._fields.items()}
        item = self._fields.get("item")
        number = item if isinstance(item, int) else NO_ITEM
        node = format_node_name(str(self._fields.get("node_id", "")), number)
        sentence = _SENTENCES.get(self._name)
        if sentence is not None:
            with suppress(KeyError):  # some places report an event without all of its fields
                return sentence.format_map({**fields, "node": node})
        return " ".join([self._name, *(f"{key}={value}" for key, value in fields.items())])


LOGGER_NAME = "runnel"
_log = logging.getLogger(LOGGER_NAME)

_SETTLED_EVENTS = (e.NodeCompleted, e.NodeFailed, e.NodeSkipped, e.NodeCancelled)


class LogTelemetry(NullTelemetry):
    """Writes events to the logger `runnel`. An event below the log level costs one comparison.

    No line is written when a task ends, because the line of its node follows. Measurements are not
    written, because they would fill the log; values that are too high are reported as events.
    """

    def event(self, name: str, **fields: object) -> None:
        level = get_level(name)
        if _log.isEnabledFor(level):
            # The record is built directly. Logger.log would search for the caller's file and line,
            # which took a quarter of the time of a log line and is not needed.
            message = EventMessage(name, fields)
            record = logging.LogRecord(LOGGER_NAME, level, "", 0, message, None, None)
            record.event, record.fields = name, fields
            _log.handle(record)

    def committed(
        self,
        execution_id: str,
        at: float,
        events: Sequence[AnyEvent],
        header: ExecutionHeader | None,
        graph: Graph | None = None,
    ) -> None:
        """Logs the end of an execution; at level debug, also each settled node."""
        if header is not None and header.state in FINAL_EXECUTION_STATES:
            self._log_end(header)
        if _log.isEnabledFor(logging.DEBUG):
            for event in events:
                self._log_detail(execution_id, event)

    def started(self, task: TaskMessage, worker: str, at: float) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            self.event(names.TASK_STARTED, worker=worker, **_build_id_fields(task.token))

    def _log_end(self, header: ExecutionHeader) -> None:
        is_failure = header.state is ExecutionState.FAILED
        name = names.EXECUTION_FAILED if is_failure else names.EXECUTION_FINISHED
        if not _log.isEnabledFor(get_level(name)):
            return
        started_at = header.started_at or header.created_at
        fields: dict[str, object] = {
            "execution_id": header.execution_id,
            "workflow": header.workflow,
            "state": str(header.state),
            "took_s": round((header.finished_at or started_at) - started_at, 3),
        }
        self.event(name, **fields, **({"error": header.error} if header.error else {}))

    def _log_detail(self, execution_id: str, event: AnyEvent) -> None:
        if isinstance(event, e.ExecutionStarted):
            self.event(names.EXECUTION_STARTED, execution_id=execution_id)
        elif isinstance(event, _SETTLED_EVENTS):
            fields: dict[str, object] = {"execution_id": execution_id, "node_id": event.node}
            if event.item != NO_ITEM:
                fields["item"] = event.item
            self.event(names.NODE_SETTLED, **fields, how=type(event).__name__)


def _build_id_fields(token: TaskToken) -> dict[str, object]:
    ids: dict[str, object] = {
        "execution_id": token.execution_id,
        "node_id": token.node_id,
        "attempt": token.attempt,
    }
    return ids if token.item == NO_ITEM else {**ids, "item": token.item}


# The fields that every log record has. All other fields are extras from the caller of the logger.
# `color_message` is the message of uvicorn again, with colors.
_STANDARD_RECORD_FIELDS = frozenset(
    {
        *vars(logging.makeLogRecord({})),
        "message",
        "asctime",
        "taskName",
        "event",
        "fields",
        "color_message",
    }
)


class _RedactingFormatter(logging.Formatter):
    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def _collect_fields(self, record: logging.LogRecord) -> dict[str, object]:
        """Returns the fields of an event, or the extras of a log record, with secrets masked.

        Leaves out fields that are None.
        """
        fields: dict[str, object] = getattr(record, "fields", None) or {
            key: value for key, value in vars(record).items() if key not in _STANDARD_RECORD_FIELDS
        }
        return {
            self._redactor.redact_text(key): self._redactor.redact_value(key, value)
            for key, value in fields.items()
            if value is not None
        }

    def _format_message(self, record: logging.LogRecord) -> str:
        event: object = getattr(record, "event", None)
        return self._redactor.redact_text(str(event or record.getMessage()))

    def _format_traceback(self, record: logging.LogRecord) -> str:
        if record.exc_info is None or record.exc_info[0] is None:
            return ""
        return self._redactor.redact_text(self.formatException(record.exc_info))


class JsonFormatter(_RedactingFormatter):
    """Formats a record as one JSON object: at, level, event or message, then all other fields.

    Each line also contains `process_fields`, which identify the process.
    """

    def __init__(self, redactor: Redactor, process_fields: dict[str, str]) -> None:
        super().__init__(redactor)
        self._process_fields = process_fields

    def format(self, record: logging.LogRecord) -> str:
        is_event = getattr(record, "event", None) is not None
        logger = {} if is_event else {"logger": record.name}
        line: dict[str, object] = {
            **self._collect_fields(record),
            "at": _format_utc(record.created),
            "level": record.levelname.lower(),
            "event" if is_event else "message": self._format_message(record),
            **logger,
            **self._process_fields,
        }
        first_keys = ("at", "level", "event", "message")
        beginning = {key: line.pop(key) for key in first_keys if key in line}
        traceback = self._format_traceback(record)
        if traceback:
            line["traceback"] = traceback
        return msgspec.json.encode(beginning | line, enc_hook=str).decode()


class TextFormatter(_RedactingFormatter):
    """Formats a record as text in local time: `12:03:04 warning store.failed call=renew`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{key}={value}" for key, value in self._collect_fields(record).items())
        parts = [at, f"{record.levelname.lower():<7}", self._format_message(record), fields]
        traceback = self._format_traceback(record)
        return " ".join(part for part in parts if part) + (f"\n{traceback}" if traceback else "")


def _format_utc(at: float) -> str:
    time = datetime.fromtimestamp(at, UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond // 1_000:03}Z"


def configure_logging(
    *,
    format_: Literal["auto", "human", "json"],
    level: str,
    secrets: Iterable[str] = (),
    hide: TextMask | None = None,
    process_fields: dict[str, str] | None = None,
) -> None:
    """Configures all loggers of this process, also those of user code, to write to stderr.

    The format `auto` is human on a terminal, otherwise JSON. All lines mask `secrets`, and the
    secrets that `hide` masks. `process_fields` are added to each JSON line.
    """
    logging.raiseExceptions = False  # a closed stderr must not end the process
    is_human = format_ == "human" or (format_ == "auto" and sys.stderr.isatty())
    redactor = Redactor(secrets, hide=hide)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        TextFormatter(redactor) if is_human else JsonFormatter(redactor, process_fields or {})
    )
    root = logging.getLogger()
    for previous_handler in root.handlers[:]:
        root.removeHandler(previous_handler)
    root.addHandler(handler)
    root.setLevel(level.upper())
